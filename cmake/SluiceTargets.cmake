# The settings shared by all targets of the project. sluice_library, sluice_executable and
# sluice_test apply them.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(SLUICE_UNITY "Compile several sources at a time: quicker from nothing, slower after an edit"
  ON)

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()

function(sluice_target_settings target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wno-unused-parameter -Werror)
  # Results must not depend on how the compiler contracts a*b+c. Kernels request FMA explicitly.
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

# Compiles the sources of a target sixteen at a time, because most of the time goes to headers and
# templates that they share. Names in the unnamed namespaces of a target's sources must then differ.
# The further sources given are compiled alone.
function(sluice_unite target)
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# Makes the target's sources read cmake/precompiled/HEADER.h first, because more than half of the
# time to compile most of them goes to headers of other projects. It includes no header of this
# project, whose change would recompile everything. A source still includes what it uses, because
# clang-tidy reads it without the precompiled header. The header is compiled once for all targets
# with the same further OPTIONS.
function(sluice_precompile target header)
  if(SLUICE_SANITIZER STREQUAL "fuzzer")
    return()  # Clang has few sources here, and other conditions for ccache.
  endif()
  # GCC 12 does not treat a precompiled <string> as a system header and warns falsely of overruns in
  # it.
  set(options -pthread -Wno-array-bounds -Wno-stringop-overread ${ARGN})
  if(SLUICE_CCACHE)  # ccache's conditions for caching compilations with a precompiled header.
    list(APPEND options -fpch-preprocess)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${SLUICE_CCACHE}")
  endif()
  target_compile_options(${target} PRIVATE ${options})

  string(MAKE_C_IDENTIFIER "precompiled_${header}${ARGN}" owner)
  if(NOT TARGET ${owner})
    set(source ${CMAKE_BINARY_DIR}/${owner}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(${owner} STATIC ${source})
    target_link_libraries(${owner} PRIVATE absl::statusor absl::strings)
    if(header MATCHES rpc)
      target_link_libraries(${owner} PRIVATE sluice_proto nlohmann_json::nlohmann_json)
    endif()
    if(header MATCHES test)
      target_link_libraries(${owner} PRIVATE GTest::gmock)
    endif()
    sluice_target_settings(${owner})
    target_compile_options(${owner} PRIVATE ${options})
    target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${header}.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

function(sluice_cold target)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# sluice_library(name SOURCES ... [ALONE sources ...] [DEPS public dependencies ...] [PRECOMPILED
# header] [COLD]) makes a static library. COLD is for code that runs once or waits for other code.
# It is compiled with -O1, in three quarters of the time of -O2.
function(sluice_library name)
  cmake_parse_arguments(ARG "COLD" "PRECOMPILED" "SOURCES;ALONE;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  sluice_target_settings(${name})
  if(ARG_COLD)
    sluice_cold(${name})
  endif()
  sluice_unite(${name} ${ARG_ALONE})
  if(ARG_PRECOMPILED)
    sluice_precompile(${name} ${ARG_PRECOMPILED})
  endif()
endfunction()

# sluice_executable(name SOURCES ... [ALONE ...] [DEPS ...] [PRECOMPILED header] [COLD]) makes an
# executable.
function(sluice_executable name)
  cmake_parse_arguments(ARG "COLD" "PRECOMPILED" "SOURCES;ALONE;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${ARG_ALONE})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  sluice_target_settings(${name})
  if(ARG_COLD)
    sluice_cold(${name})
  endif()
  sluice_unite(${name} ${ARG_ALONE})
  if(ARG_PRECOMPILED)
    sluice_precompile(${name} ${ARG_PRECOMPILED})
  endif()
endfunction()

# Builds all programs that ctest runs.
add_custom_target(sluice_tests)

# sluice_ctest(name program [FILTER filter] [ENVIRONMENT NAME=value ...]) makes a run of a
# GoogleTest program a test of ctest. The program reports its tests one by one in gtest/NAME.xml of
# the build folder.
function(sluice_ctest name program)
  cmake_parse_arguments(ARG "" "FILTER" "ENVIRONMENT" ${ARGN})
  if(ARG_FILTER)
    set(filter --gtest_filter=${ARG_FILTER})
  endif()
  add_test(NAME ${name} COMMAND ${program} --gtest_brief=1 ${filter}
    --gtest_output=xml:${CMAKE_BINARY_DIR}/gtest/${name}.xml)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${ARG_ENVIRONMENT}"
    TIMEOUT $<IF:$<BOOL:${SLUICE_SANITIZER}>,3600,900>)
endfunction()

# sluice_test(name SOURCES ... [ALONE ...] [DEPS ...] [PRECOMPILED header] [OPTIMIZED] [SHARDS n])
# makes a GoogleTest binary that is one test to ctest: a process for each of its tests would take
# longer than most of them. With SHARDS it is that many tests of ctest, NAME_1 and so on, which
# share the binary's tests and run at the same time; ctest begins with them because they take
# longest. The binary's own code is not optimised unless it is OPTIMIZED, because most of it runs
# once. The code under test is optimised. With a sanitizer the tests are optimised too, because they
# are slow enough as it is.
function(sluice_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "PRECOMPILED;SHARDS" "SOURCES;ALONE;DEPS" ${ARGN})
  sluice_executable(${name} SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE} DEPS ${ARG_DEPS}
    GTest::gmock_main)
  target_compile_definitions(${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED test)
  endif()
  set(optimisation -O0)
  if(ARG_OPTIMIZED OR SLUICE_SANITIZER)
    set(optimisation "")
    sluice_cold(${name})
  endif()
  sluice_precompile(${name} ${ARG_PRECOMPILED} ${optimisation})
  add_dependencies(sluice_tests ${name})
  if(NOT ARG_SHARDS)
    sluice_ctest(${name} ${name})
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    sluice_ctest(${name}_${shard} ${name}
      ENVIRONMENT GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    set_tests_properties(${name}_${shard} PROPERTIES COST 100)
  endforeach()
endfunction()
