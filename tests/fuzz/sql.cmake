ingero_add_fuzzer(sql_fuzz SOURCES sql_fuzz.cpp CORPUS corpus/sql LIBRARIES ingero-sql)
