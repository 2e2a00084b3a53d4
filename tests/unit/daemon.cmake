ingero_add_test(daemon_parts_test LABEL unit SOURCES daemon_parts_test.cpp LIBRARIES ingerod-lib)
