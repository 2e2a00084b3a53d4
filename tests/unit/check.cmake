ingero_add_test(check_test LABEL unit SOURCES check_test.cpp LIBRARIES ingerod-lib)
