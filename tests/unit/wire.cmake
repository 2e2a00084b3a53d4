ingero_add_test(unit_wire_test LABEL unit SOURCES control_caller_test.cpp control_server_test.cpp
    control_answer_test.cpp
  ctl_test.cpp render_test.cpp render_text_test.cpp render_top_test.cpp rpc_test.cpp
  LIBRARIES ingero-core ingerod-lib)
ingero_together(unit_wire_test control_caller_test.cpp control_server_test.cpp ctl_test.cpp render_test.cpp
  render_text_test.cpp render_top_test.cpp rpc_test.cpp)
target_compile_definitions(unit_wire_test PRIVATE INGERO_VERSION="${PROJECT_VERSION}")
add_dependencies(unit_wire_test ingeroctl)
find_program(PYTHON3 NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME ctl_pager.long_answers_are_paged_on_a_terminal
  COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ctl_pager_test.py $<TARGET_FILE:ingeroctl>)
set_tests_properties(ctl_pager.long_answers_are_paged_on_a_terminal PROPERTIES LABELS unit TIMEOUT 120)
add_test(NAME ctl_situations.each_command_says_what_to_do
  COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ctl_situations_test.py $<TARGET_FILE:ingeroctl>
    $<TARGET_FILE:ingerod> $<TARGET_FILE:ingero-relay>)
set_tests_properties(ctl_situations.each_command_says_what_to_do PROPERTIES LABELS unit TIMEOUT 240)
add_test(NAME deb_postrm.follows_no_link
  COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/deb_postrm_test.py
  ${PROJECT_SOURCE_DIR}/packaging/deb/ingero.postrm)
set_tests_properties(deb_postrm.follows_no_link PROPERTIES LABELS unit TIMEOUT 120)
