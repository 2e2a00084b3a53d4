ingero_add_test(unit_store_test LABEL unit SOURCES block_test.cpp column_codec_test.cpp coverage_test.cpp
    recording_test.cpp
  store_damage_test.cpp store_history_test.cpp store_rollup_test.cpp store_space_test.cpp store_test.cpp
  store_upkeep_test.cpp
  store_users_test.cpp store_verify_test.cpp time_test.cpp
  LIBRARIES ingero-core PkgConfig::SECCOMP PkgConfig::LMDB)
ingero_together(unit_store_test block_test.cpp column_codec_test.cpp store_damage_test.cpp store_space_test.cpp
  store_test.cpp store_verify_test.cpp time_test.cpp)
ingero_together(unit_store_test coverage_test.cpp store_history_test.cpp store_rollup_test.cpp store_upkeep_test.cpp
  store_users_test.cpp)
