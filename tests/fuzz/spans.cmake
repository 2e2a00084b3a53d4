ingero_add_fuzzer(span_fuzz SOURCES span_fuzz.cpp CORPUS corpus/span)
