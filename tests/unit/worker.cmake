add_library(elf_fixture SHARED elf_fixture.c)
target_link_libraries(elf_fixture PRIVATE ingero-warnings)
target_link_options(elf_fixture PRIVATE -Wl,--build-id=sha1 -Wl,-Bsymbolic
                                        -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/elf_fixture.map)
set_target_properties(elf_fixture PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/elf_fixture.map)

# Plays a worker that was taken over.
add_executable(lying-worker lying_worker.cpp)
target_link_libraries(lying-worker PRIVATE ingero-flags ingero-core ingero-worker-lib)

# Plays the worker of an MCP session, as its client says.
add_executable(session-worker session_worker.cpp)
target_link_libraries(session-worker PRIVATE ingero-flags ingero-core)

ingero_add_test(unit_worker_test LABEL unit SOURCES elf_symbols_test.cpp lying_worker_test.cpp mcp_turns_test.cpp
  worker_sandbox_test.cpp worker_store_test.cpp worker_test.cpp
  LIBRARIES ingero-core ingerod-lib ingero-worker-lib test-support)
ingero_together(unit_worker_test worker_sandbox_test.cpp worker_store_test.cpp worker_test.cpp)
add_dependencies(unit_worker_test elf_fixture ingero-worker lying-worker session-worker)
# Those libraries are made in tests/integration/attach.
add_dependencies(unit_worker_test misplaced-cudart misplaced-cudart-unsized)
