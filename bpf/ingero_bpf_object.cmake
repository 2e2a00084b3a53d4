# ingero_bpf_object(NAME SOURCE [DEFINES ...]): compiles CO-RE C and makes NAME.skel.h, found through target NAME.
find_program(CLANG_BPF NAMES clang clang-14 REQUIRED)
find_program(LLVM_STRIP NAMES llvm-strip llvm-strip-14 REQUIRED)
find_program(BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(bpf_arch arm64)
else()
  set(bpf_arch x86)
endif()

function(ingero_bpf_object name source)
  cmake_parse_arguments(ARG "" "" "DEFINES" ${ARGN})
  list(TRANSFORM ARG_DEFINES PREPEND -D)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.bpf.o)
  set(skeleton ${CMAKE_CURRENT_BINARY_DIR}/${name}.skel.h)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bpf/*.h)
  # DWARF is stripped, BTF stays: what the loader needs.
  add_custom_command(OUTPUT ${object}
    COMMAND ${CLANG_BPF} -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter
            -D__TARGET_ARCH_${bpf_arch} ${ARG_DEFINES} -I${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
            -I${PROJECT_SOURCE_DIR}/bpf -fdebug-prefix-map=${PROJECT_SOURCE_DIR}=. -c
            ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    COMMAND ${LLVM_STRIP} -g ${object}
    DEPENDS ${source} ${headers} COMMENT "BPF ${name}")
  add_custom_command(OUTPUT ${skeleton}
    COMMAND ${BPFTOOL} gen skeleton ${object} name ${name} > ${skeleton}
    DEPENDS ${object} COMMENT "Skeleton ${name}")
  add_custom_target(${name}-generated DEPENDS ${skeleton})
  add_library(${name} INTERFACE)
  add_dependencies(${name} ${name}-generated)
  target_include_directories(${name} SYSTEM INTERFACE ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} INTERFACE PkgConfig::LIBBPF)
endfunction()
