ingero_add_fuzzer(proc_fuzz SOURCES proc_fuzz.cpp CORPUS corpus/proc LIBRARIES ingerod-lib)
ingero_add_fuzzer(ring_fuzz SOURCES ring_fuzz.cpp CORPUS corpus/ring LIBRARIES ingerod-lib)
ingero_add_fuzzer(config_fuzz SOURCES config_fuzz.cpp CORPUS corpus/config LIBRARIES ingerod-lib)
ingero_add_fuzzer(capture_fuzz SOURCES capture_fuzz.cpp CORPUS corpus/capture LIBRARIES ingerod-lib)
