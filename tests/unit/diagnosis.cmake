ingero_add_test(unit_diagnosis_test LABEL unit SOURCES collective_detectors_test.cpp collective_waits_test.cpp
  detectors_test.cpp detectors_truth_test.cpp ended_ranks_test.cpp explain_boots_test.cpp explain_evidence_test.cpp
  explain_hostile_test.cpp explain_test.cpp finding_shares_test.cpp gap_detectors_test.cpp gap_devices_test.cpp
  history_detectors_test.cpp incident_history_test.cpp incidents_test.cpp late_waits_test.cpp live_replay_test.cpp
  live_window_test.cpp lost_time_test.cpp meanwhile_test.cpp nccl_hang_test.cpp neighbour_detectors_test.cpp
  old_nccl_hang_test.cpp rank_conditions_test.cpp request_stalls_test.cpp requests_test.cpp
  rooted_collectives_test.cpp stats_test.cpp stragglers_live_test.cpp stragglers_test.cpp wait_chains_test.cpp
  ${PROJECT_SOURCE_DIR}/ctl/files/demos.cpp
  LIBRARIES ingero-core test-support PkgConfig::ZSTD)
ingero_together(unit_diagnosis_test detectors_test.cpp detectors_truth_test.cpp gap_detectors_test.cpp
  gap_devices_test.cpp history_detectors_test.cpp neighbour_detectors_test.cpp stats_test.cpp)
ingero_together(unit_diagnosis_test collective_detectors_test.cpp wait_chains_test.cpp)
ingero_together(unit_diagnosis_test explain_evidence_test.cpp explain_test.cpp stragglers_test.cpp)
