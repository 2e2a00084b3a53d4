ingero_add_test(export_test LABEL unit SOURCES export_test.cpp LIBRARIES ingero-export)
target_compile_definitions(export_test PRIVATE
  PERFETTO_READER="${PROJECT_SOURCE_DIR}/tests/support/perfetto_trace.py")
