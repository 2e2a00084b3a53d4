ingero_add_test(unit_daemon_test LABEL unit SOURCES attach_thread_test.cpp bounded_calls_test.cpp
    capture_policy_test.cpp coverage_gaps_test.cpp daemon_parts_test.cpp
  footprint_parts_test.cpp gpus_test.cpp host_rows_test.cpp host_state_test.cpp hot_sites_test.cpp
  libraries_test.cpp library_search_test.cpp library_shares_test.cpp
  live_diagnosis_test.cpp live_notices_test.cpp live_trace_test.cpp mapped_file_test.cpp
  mapped_files_test.cpp mapping_filter_test.cpp mmap_watch_test.cpp overhead_test.cpp posted_calls_test.cpp
  process_facts_test.cpp process_walk_test.cpp
  processes_test.cpp relay_parts_test.cpp remembered_processes_test.cpp shares_test.cpp slices_test.cpp
  LIBRARIES ingerod-lib ingero-core ingero-relay-lib test-support)
ingero_together(unit_daemon_test capture_policy_test.cpp coverage_gaps_test.cpp daemon_parts_test.cpp
  footprint_parts_test.cpp host_state_test.cpp libraries_test.cpp live_notices_test.cpp live_trace_test.cpp
  mapped_file_test.cpp mapping_filter_test.cpp process_facts_test.cpp relay_parts_test.cpp shares_test.cpp)
ingero_together(unit_daemon_test gpus_test.cpp library_shares_test.cpp mapped_files_test.cpp posted_calls_test.cpp
  overhead_test.cpp processes_test.cpp)
add_dependencies(unit_daemon_test ingero-worker standin-cuda)
