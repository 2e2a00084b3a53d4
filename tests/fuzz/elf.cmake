ingero_add_fuzzer(elf_fuzz SOURCES elf_fuzz.cpp CORPUS corpus/elf LIBRARIES ingero-core)
