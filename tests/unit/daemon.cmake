ingero_add_test(daemon_parts_test LABEL unit SOURCES daemon_parts_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(capture_policy_test LABEL unit SOURCES capture_policy_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(coverage_gaps_test LABEL unit SOURCES coverage_gaps_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(libraries_test LABEL unit SOURCES libraries_test.cpp LIBRARIES ingerod-lib)
