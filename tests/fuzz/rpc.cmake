ingero_add_fuzzer(rpc_fuzz SOURCES rpc_fuzz.cpp CORPUS corpus/rpc)
