add_library(elf_fixture SHARED elf_fixture.c)
target_link_libraries(elf_fixture PRIVATE ingero-warnings)
target_link_options(elf_fixture PRIVATE -Wl,--build-id=sha1
                                        -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/elf_fixture.map)
set_target_properties(elf_fixture PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/elf_fixture.map)

ingero_add_test(elf_symbols_test LABEL unit SOURCES elf_symbols_test.cpp LIBRARIES ingero-core)
ingero_add_test(worker_test LABEL unit SOURCES worker_test.cpp LIBRARIES ingerod-lib)
ingero_add_test(worker_sandbox_test LABEL unit SOURCES worker_sandbox_test.cpp LIBRARIES ingero-worker-lib)
foreach(name elf_symbols_test worker_test)
  add_dependencies(${name} elf_fixture)
  target_compile_definitions(${name} PRIVATE INGERO_ELF_FIXTURE="$<TARGET_FILE:elf_fixture>")
endforeach()
add_dependencies(worker_test ingero-worker)
target_compile_definitions(worker_test PRIVATE INGERO_WORKER="$<TARGET_FILE:ingero-worker>")
# Those libraries are made in tests/integration/attach.
target_compile_definitions(elf_symbols_test PRIVATE MISPLACED_CUDART="$<TARGET_FILE:misplaced-cudart>"
  MISPLACED_CUDART_UNSIZED="$<TARGET_FILE:misplaced-cudart-unsized>")
add_dependencies(elf_symbols_test misplaced-cudart misplaced-cudart-unsized)
