ingero_add_fuzzer(unwind_fuzz SOURCES unwind_fuzz.cpp CORPUS corpus/unwind)
ingero_add_fuzzer(symbolizer_fuzz SOURCES symbolizer_fuzz.cpp CORPUS corpus/symbolizer)
