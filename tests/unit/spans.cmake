ingero_add_test(unit_spans_test LABEL unit SOURCES span_join_test.cpp span_limits_test.cpp span_scope_test.cpp
  span_stream_test.cpp
  LIBRARIES ingero-core ingerod-lib)
ingero_together(unit_spans_test span_join_test.cpp span_limits_test.cpp span_scope_test.cpp span_stream_test.cpp)
