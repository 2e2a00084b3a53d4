ingero_add_fuzzer(import_fuzz SOURCES import_fuzz.cpp CORPUS corpus/import LIBRARIES ingero-import)
