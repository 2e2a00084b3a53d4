# Where tests find what they run and read: NAME and path, one a line. In C++: `const char* const NAME`, from
# "test_paths.h".
# TRUSTED_DIRECTORY is root's alone all the way, wherever the build lies.
# Not compile definitions: what one checkout has compiled serves another (ccache).
set(test_paths
  ATTACH_TARGET "$<TARGET_FILE:attach-target>"
  BUILD_DIRECTORY "${PROJECT_BINARY_DIR}"
  BUS_CLIENT "${PROJECT_SOURCE_DIR}/tests/integration/bus_client.py"
  CHAIN_LIBRARY "$<TARGET_FILE:stacks-chain>"
  COLLECTIVES_PROGRAM "$<TARGET_FILE:standin-collectives>"
  CUDART12_LIBRARY "$<TARGET_FILE:standin-cudart12>"
  CUDART13_LIBRARY "$<TARGET_FILE:standin-cudart13>"
  CUDART_LIBRARY "$<TARGET_FILE:standin-cudart13>"
  CUDA_LIBRARY "$<TARGET_FILE:standin-cuda>"
  DBUS_DIRECTORY "${PROJECT_SOURCE_DIR}/dbus"
  EMITTER_SOURCE "${PROJECT_SOURCE_DIR}/integrations/vllm/src"
  EXAMPLES "${PROJECT_SOURCE_DIR}/docs/examples"
  EXEC_PROGRAM_NEW "$<TARGET_FILE:stacks-exec-new>"
  EXEC_PROGRAM_OLD "$<TARGET_FILE:stacks-exec-old>"
  FOOTPRINT_LIBRARY "$<TARGET_FILE:footprint-library>"
  FOOTPRINT_PROGRAM "$<TARGET_FILE:footprint-program>"
  HARMED_ARGUMENT "$<TARGET_FILE:harmed-target-argument>"
  HARMED_FILTERED "$<TARGET_FILE:harmed-target-filtered>"
  HOG_PROGRAM "$<TARGET_FILE:standin-hog>"
  HOST_PROGRAM "$<TARGET_FILE:host-program>"
  INGEROCTL "$<TARGET_FILE:ingeroctl>"
  INGEROCTL_PROGRAM "$<TARGET_FILE:ingeroctl>"
  INGEROD_PROGRAM "$<TARGET_FILE:ingerod>"
  INGERO_ELF_FIXTURE "$<TARGET_FILE:elf_fixture>"
  INGERO_PUBLISHED_SQL "${PROJECT_SOURCE_DIR}/tests/data/published.sql"
  INGERO_SOURCE_DIR "${PROJECT_SOURCE_DIR}"
  INGERO_TEST_DATA "${PROJECT_SOURCE_DIR}/tests/data"
  INGERO_TRACES "${INGERO_TRACES}"
  INGERO_UNWIND_FIXTURE "$<TARGET_FILE:unwind_fixture>"
  INGERO_WORKER "$<TARGET_FILE:ingero-worker>"
  JUMPS_LIBRARY "$<TARGET_FILE:stacks-jumps>"
  LATE_NFS "$<TARGET_FILE:late-nfs>"
  LYING_WORKER "$<TARGET_FILE:lying-worker>"
  MATRIX_FILE "${PROJECT_SOURCE_DIR}/build/detection-matrix.json"
  MCP_CLIENT "${PROJECT_SOURCE_DIR}/tests/support/mcp_client.py"
  MISPLACED_CUDART "$<TARGET_FILE:misplaced-cudart>"
  MISPLACED_CUDART_UNSIZED "$<TARGET_FILE:misplaced-cudart-unsized>"
  NOTIFICATIONS "${PROJECT_SOURCE_DIR}/tests/integration/notifications.py"
  ORDINARY_NOISE "${PROJECT_SOURCE_DIR}/tests/detection/noise.sh"
  PERFETTO_READER "${PROJECT_SOURCE_DIR}/tests/support/perfetto_trace.py"
  PLAIN_CUDART_A "$<TARGET_FILE:plain-cudart-a>"
  PLAIN_CUDART_B "$<TARGET_FILE:plain-cudart-b>"
  QUIET_CUDART "$<TARGET_FILE:quiet-cudart>"
  RELAY_PROGRAM "$<TARGET_FILE:ingero-relay>"
  REUSE_DRIVER "$<TARGET_FILE:reuse-driver>"
  REUSE_PROGRAM "$<TARGET_FILE:reuse-program>"
  SCHEMA_DIRECTORY "${PROJECT_SOURCE_DIR}/docs/schemas"
  SDK_CLIENT "${PROJECT_SOURCE_DIR}/tests/mcp/sdk_client.mjs"
  SERVE "${PROJECT_SOURCE_DIR}/tests/integration/requests/serve.py"
  SESSION_WORKER "$<TARGET_FILE:session-worker>"
  SILENT_FUSE "$<TARGET_FILE:silent-fuse>"
  SPAN_CLIENT "${PROJECT_SOURCE_DIR}/tests/integration/span_client.py"
  SPAN_LOAD "${PROJECT_SOURCE_DIR}/tests/reliability/span_load.py"
  STACKS_PROGRAM "$<TARGET_FILE:stacks-program>"
  STALLING_FUSE "$<TARGET_FILE:stalling-fuse>"
  STANDIN_LIB "${PROJECT_BINARY_DIR}/tests/standin/lib"
  STATIC_WORKLOAD "$<TARGET_FILE:standin-workload-static>"
  TROUBLE_PROGRAM "$<TARGET_FILE:trouble>"
  TRUSTED_DIRECTORY "/var/lib"
  VALIDATE_SCHEMA "${PROJECT_SOURCE_DIR}/tests/support/validate_schema.py"
  WORKER_PROGRAM "$<TARGET_FILE:ingero-worker>"
  WORKLOAD_PROGRAM "$<TARGET_FILE:standin-workload>"
)
set(declarations "#pragma once\n")
set(definitions "#include \"test_paths.h\"\n")
while(test_paths)
  list(POP_FRONT test_paths name path)
  string(APPEND declarations "extern const char* const ${name};\n")
  string(APPEND definitions "const char* const ${name} = R\"(${path})\";\n")
endwhile()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_paths.h CONTENT "${declarations}")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_paths.cpp CONTENT "${definitions}")
add_library(test-paths STATIC ${CMAKE_CURRENT_BINARY_DIR}/test_paths.cpp)
target_include_directories(test-paths PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
