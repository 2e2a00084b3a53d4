ingero_add_test(sql_test LABEL unit SOURCES sql_history_test.cpp sql_test.cpp
  LIBRARIES ingero-sql PkgConfig::SQLITE)
ingero_together(sql_test sql_history_test.cpp sql_test.cpp)
