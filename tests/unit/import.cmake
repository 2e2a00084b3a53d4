ingero_add_test(import_test LABEL unit SOURCES import_test.cpp LIBRARIES ingero-import PkgConfig::SQLITE)
ingero_add_test(import_history_test LABEL unit SOURCES import_history_test.cpp
  LIBRARIES ingero-import ingero-sql PkgConfig::SQLITE)
target_compile_definitions(import_history_test PRIVATE
  INGERO_PUBLISHED_SQL="${PROJECT_SOURCE_DIR}/tests/data/published.sql")
ingero_add_test(import_traces_test LABEL unit SOURCES import_traces_test.cpp LIBRARIES ingero-import PkgConfig::SQLITE)
# Published traces, too large for this repository.
if(EXISTS ${PROJECT_SOURCE_DIR}/../shared/traces)
  get_filename_component(traces_beside ${PROJECT_SOURCE_DIR}/../shared/traces ABSOLUTE)
endif()
set(INGERO_TRACES "${traces_beside}" CACHE PATH "published traces to import in tests; empty for none")
target_compile_definitions(import_traces_test PRIVATE INGERO_TRACES="${INGERO_TRACES}")
ingero_add_test(ctl_stored_test LABEL unit SOURCES ctl_stored_test.cpp
  LIBRARIES ingero-import PkgConfig::SQLITE)
target_compile_definitions(ctl_stored_test PRIVATE INGEROCTL="$<TARGET_FILE:ingeroctl>"
  INGERO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(ctl_stored_test ingeroctl ingero-worker)
ingero_add_test(ctl_db_test LABEL unit SOURCES ctl_db_test.cpp LIBRARIES ingero-core PkgConfig::LMDB)
target_compile_definitions(ctl_db_test PRIVATE INGEROCTL="$<TARGET_FILE:ingeroctl>"
  INGERO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(ctl_db_test ingeroctl ingero-worker)
ingero_add_test(ctl_demo_test LABEL unit SOURCES ctl_demo_test.cpp LIBRARIES test-support)
target_compile_definitions(ctl_demo_test PRIVATE SCHEMA_DIRECTORY="${PROJECT_SOURCE_DIR}/docs/schemas"
  VALIDATE_SCHEMA="${PROJECT_SOURCE_DIR}/tests/support/validate_schema.py")
