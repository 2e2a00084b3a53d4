ingero_add_test(unit_mcp_test LABEL unit SOURCES mcp_session_test.cpp timeline_test.cpp
  LIBRARIES ingero-mcp ingero-core)
ingero_together(unit_mcp_test mcp_session_test.cpp timeline_test.cpp)
