ingero_add_test(sql_test LABEL unit SOURCES sql_test.cpp LIBRARIES ingero-sql PkgConfig::SQLITE)
target_compile_definitions(sql_test PRIVATE INGERO_PUBLISHED_SQL="${PROJECT_SOURCE_DIR}/tests/data/published.sql")
ingero_add_test(sql_history_test LABEL unit SOURCES sql_history_test.cpp LIBRARIES ingero-sql PkgConfig::SQLITE)
