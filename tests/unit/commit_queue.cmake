ingero_add_test(unit_commit_queue_test LABEL unit SOURCES commit_queue_test.cpp LIBRARIES ingerod-lib ingero-core)
