# Settings shared by all targets of the project, applied by sluice_library/executable/test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()

function(sluice_target_settings target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wno-unused-parameter -Werror)
  # Results must not depend on how the compiler contracts a*b+c: kernels ask for FMA by name.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(SLUICE_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-omit-frame-pointer
                                             -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(SLUICE_SANITIZER STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(SLUICE_SANITIZER STREQUAL "fuzzer")
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link,address,undefined
                                             -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()

# sluice_library(name SOURCES ... [DEPS public dependencies ...])
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  sluice_target_settings(${name})
endfunction()

# sluice_executable(name SOURCES ... [DEPS ...])
function(sluice_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  sluice_target_settings(${name})
endfunction()

# What the tests and the header that is precompiled for them agree on.
function(sluice_test_settings target)
  target_compile_options(${target} PRIVATE -pthread)
  # What is tested keeps its optimisation; most of a test's own code runs once. Sanitizers slow it down
  # enough as it is.
  if(NOT SLUICE_SANITIZER)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(SLUICE_CCACHE)
    # ccache's conditions for compilations that read a precompiled header.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${SLUICE_CCACHE}")
  endif()
endfunction()

# sluice_test(name SOURCES ... [DEPS ...] [OPTIMIZED]): a GoogleTest binary, each of its tests known to
# ctest. Its sources read tests/precompiled.h and are not optimised, unless it is OPTIMIZED.
function(sluice_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "SOURCES;DEPS" ${ARGN})
  sluice_executable(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock_main)
  target_compile_definitions(${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_OPTIMIZED)
    sluice_test_settings(${name})
    target_precompile_headers(${name} REUSE_FROM tests_precompiled)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()
