ingero_add_test(signal_queue_test LABEL unit SOURCES signal_queue_test.cpp LIBRARIES ingerod-lib)
