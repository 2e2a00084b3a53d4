ingero_add_test(merge_test LABEL unit SOURCES merge_test.cpp LIBRARIES ingero-import)
