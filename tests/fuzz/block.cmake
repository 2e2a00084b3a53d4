ingero_add_fuzzer(block_fuzz SOURCES block_fuzz.cpp CORPUS corpus/block)
ingero_add_fuzzer(batch_fuzz SOURCES batch_fuzz.cpp CORPUS corpus/batch)
