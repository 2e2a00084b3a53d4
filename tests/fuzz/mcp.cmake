ingero_add_fuzzer(mcp_fuzz SOURCES mcp_fuzz.cpp CORPUS corpus/mcp LIBRARIES ingero-mcp)
