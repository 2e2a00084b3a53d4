add_library(unwind_fixture SHARED unwind_fixture.c)
target_compile_options(unwind_fixture PRIVATE -O1)
target_link_libraries(unwind_fixture PRIVATE ingero-warnings)
target_link_options(unwind_fixture PRIVATE -Wl,--build-id=sha1)
add_custom_command(TARGET unwind_fixture POST_BUILD
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:unwind_fixture> $<TARGET_FILE:unwind_fixture>.debug
  COMMAND ${CMAKE_OBJCOPY} --strip-all --add-gnu-debuglink=$<TARGET_FILE:unwind_fixture>.debug
          $<TARGET_FILE:unwind_fixture> $<TARGET_FILE:unwind_fixture>.stripped
  VERBATIM)
# Alone: one of its inputs is its own program.
ingero_add_test(unwind_table_test LABEL unit SOURCES unwind_table_test.cpp LIBRARIES ingero-core)
ingero_add_test(unit_stacks_test LABEL unit SOURCES stacks_parts_test.cpp stacks_query_test.cpp symbolizer_test.cpp
 
  LIBRARIES ingero-core ingerod-lib)
ingero_together(unit_stacks_test stacks_parts_test.cpp stacks_query_test.cpp)
add_dependencies(unit_stacks_test unwind_fixture)
