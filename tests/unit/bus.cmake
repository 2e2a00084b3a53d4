ingero_add_test(signal_queue_test LABEL unit SOURCES signal_queue_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(bus_connection_test LABEL unit SOURCES bus_connection_test.cpp
  LIBRARIES ingerod-lib dbus-stubs PkgConfig::SECCOMP)
