ingero_add_test(daemon_parts_test LABEL unit SOURCES daemon_parts_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(mapped_file_test LABEL unit SOURCES mapped_file_test.cpp LIBRARIES ingerod-lib)
