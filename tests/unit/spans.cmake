ingero_add_test(span_stream_test LABEL unit SOURCES span_stream_test.cpp LIBRARIES ingero-core)
ingero_add_test(span_join_test LABEL unit SOURCES span_join_test.cpp LIBRARIES ingero-core)
ingero_add_test(span_scope_test LABEL unit SOURCES span_scope_test.cpp LIBRARIES ingero-core)
ingero_add_test(span_limits_test LABEL unit SOURCES span_limits_test.cpp LIBRARIES ingerod-lib)
