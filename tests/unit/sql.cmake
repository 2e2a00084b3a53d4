ingero_add_test(unit_sql_test LABEL unit SOURCES sql_groups_test.cpp sql_history_test.cpp sql_limits_test.cpp sql_or_test.cpp sql_test.cpp
    thinned_calls_test.cpp
  LIBRARIES ingero-export PkgConfig::SQLITE)
ingero_together(unit_sql_test sql_history_test.cpp sql_limits_test.cpp sql_test.cpp)
# An hour in its long form.
ingero_add_test(unit_sql_random_test LABEL unit SOURCES sql_random_test.cpp LIBRARIES ingero-sql PkgConfig::SQLITE
    TIMEOUT 4500)
