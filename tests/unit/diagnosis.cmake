ingero_add_test(stats_test LABEL unit SOURCES stats_test.cpp LIBRARIES ingero-core)
ingero_add_test(explain_test LABEL unit SOURCES explain_test.cpp explain_hostile_test.cpp LIBRARIES ingero-core)
ingero_add_test(incidents_test LABEL unit SOURCES incidents_test.cpp LIBRARIES ingero-core)
ingero_add_test(requests_test LABEL unit SOURCES requests_test.cpp LIBRARIES ingero-core)
