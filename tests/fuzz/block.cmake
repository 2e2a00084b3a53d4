ingero_add_fuzzer(block_fuzz SOURCES block_fuzz.cpp CORPUS corpus/block)
