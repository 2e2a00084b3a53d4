ingero_add_test(mcp_session_test LABEL unit SOURCES mcp_session_test.cpp LIBRARIES ingero-mcp)
ingero_add_test(timeline_test LABEL unit SOURCES timeline_test.cpp LIBRARIES ingero-core)
