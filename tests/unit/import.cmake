ingero_add_test(unit_import_test LABEL unit SOURCES ctl_db_test.cpp ctl_demo_test.cpp ctl_stored_test.cpp
    import_history_test.cpp
  import_test.cpp import_traces_test.cpp
  LIBRARIES ingero-import PkgConfig::SQLITE ingero-sql ingero-core PkgConfig::LMDB test-support)
ingero_together(unit_import_test ctl_stored_test.cpp import_test.cpp import_traces_test.cpp)
ingero_together(unit_import_test ctl_db_test.cpp import_history_test.cpp)
# Published traces, too large for this repository.
if(EXISTS ${PROJECT_SOURCE_DIR}/../shared/traces)
  get_filename_component(traces_beside ${PROJECT_SOURCE_DIR}/../shared/traces ABSOLUTE)
endif()
set(INGERO_TRACES "${traces_beside}" CACHE PATH "published traces to import in tests; empty for none")
add_dependencies(unit_import_test ingeroctl ingero-worker)
