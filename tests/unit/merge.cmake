ingero_add_test(merge_test LABEL unit SOURCES merge_copies_test.cpp merge_test.cpp LIBRARIES ingero-import)
