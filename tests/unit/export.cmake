ingero_add_test(export_test LABEL unit SOURCES export_test.cpp LIBRARIES ingero-export)
