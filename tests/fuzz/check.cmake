ingero_add_fuzzer(check_fuzz SOURCES check_fuzz.cpp CORPUS corpus/check LIBRARIES ingerod-lib)
