# What makes a program fit for the portable archive: see entry.c.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(INGERO_LOADER_NAME ld-linux-aarch64.so.1)
else()
  set(INGERO_LOADER_NAME ld-linux-x86-64.so.2)
endif()
set(INGERO_ENTRY_SOURCE ${CMAKE_CURRENT_LIST_DIR}/entry.c)
# No libc is there yet: neither its memset nor what guards a stack.
set(INGERO_ENTRY_OPTIONS -O2 -fPIE -ffreestanding -fno-builtin -fno-stack-protector
                         -fno-tree-loop-distribute-patterns)
# Before LD_LIBRARY_PATH and for libraries of libraries too, which only the old tag is.
set(INGERO_ENTRY_LINK_OPTIONS -Wl,-e,ingero_portable_entry -Wl,--disable-new-dtags)

# ingero_portable(TARGET FOLDER [BESIDE]): `TARGET` once more, as FOLDER of the archive holds it, in portable/FOLDER of
# the
# build. BESIDE: libraries in FOLDER/lib come before those of the archive.
function(ingero_portable target folder)
  file(RELATIVE_PATH libraries /archive/${folder} /archive/lib)
  string(REGEX REPLACE "/$" "" libraries ${libraries})
  set(search "$ORIGIN/${libraries}")
  if("BESIDE" IN_LIST ARGN)
    list(PREPEND search "$ORIGIN/lib")
  endif()
  get_target_property(exports ${target} ENABLE_EXPORTS)
  string(MAKE_C_IDENTIFIER portable-entry-${folder} entry)
  if(NOT TARGET ${entry})
    add_library(${entry} OBJECT EXCLUDE_FROM_ALL ${INGERO_ENTRY_SOURCE})
    target_compile_options(${entry} PRIVATE ${INGERO_ENTRY_OPTIONS})
    target_compile_definitions(${entry} PRIVATE INGERO_LOADER="${libraries}/${INGERO_LOADER_NAME}")
    target_link_libraries(${entry} PRIVATE ingero-warnings)
  endif()
  add_executable(portable-${target} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${target}> $<TARGET_OBJECTS:${entry}>)
  target_link_libraries(portable-${target} PRIVATE $<TARGET_PROPERTY:${target},LINK_LIBRARIES>)
  target_link_options(portable-${target} PRIVATE ${INGERO_ENTRY_LINK_OPTIONS})
  set_target_properties(portable-${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${target}
    ENABLE_EXPORTS ${exports}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable/${folder}
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${search}")
  add_dependencies(portable portable-${target})
endfunction()
