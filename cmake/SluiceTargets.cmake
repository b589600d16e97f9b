# The settings shared by all targets of the project. sluice_library, sluice_executable and
# sluice_test apply them.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(SLUICE_UNITY "Compile several sources at a time: a faster full build, slower after an edit"
  ON)
option(SLUICE_PRECOMPILE "Precompile headers of libraries: a faster full build" ON)

# tools/unity_parts.py decides which sources are compiled together.
find_program(SLUICE_PYTHON python3 HINTS /usr/bin)
if(SLUICE_UNITY AND NOT SLUICE_PYTHON)
  message(WARNING "python3 was not found: sources are compiled one at a time")
endif()

# lld links in a fifth of the time of GNU ld, which matters because many programs are linked. GCC as
# a cross compiler does not find it.
find_program(SLUICE_LLD ld.lld)
if(SLUICE_LLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()

# By default GCC starts garbage collection at 128 MiB, which costs a tenth of its time.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)

function(sluice_target_settings target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wno-unused-parameter -Werror)
  # Results must not depend on how the compiler contracts a*b+c. Kernels request FMA explicitly.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(SLUICE_ARM64)  # where char is unsigned by default
    target_compile_options(${target} PRIVATE -fsigned-char)
  endif()
  if(SLUICE_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-omit-frame-pointer
                                             -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(SLUICE_SANITIZER STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(SLUICE_SANITIZER STREQUAL "fuzzer")
    # Clang reports that GCC 12's std::stable_sort uses a deprecated function of GCC's library.
    # Since Clang 18 its names of constrained templates differ from those in libraries that GCC 12
    # built.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link,address,undefined
      -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-deprecated-declarations
      -fclang-abi-compat=17)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()

# Compiles sources of a target together, because they share headers and templates, which take most
# of the time. Sources that define the same name differently in their unnamed namespaces are kept
# apart. A source that several targets of a folder share keeps its first part. Sources that do not
# exist yet and sources with their own options are compiled one at a time.
function(sluice_unite target)
  if(NOT SLUICE_UNITY OR NOT SLUICE_PYTHON)
    return()
  endif()
  set(sources "")
  get_target_property(all ${target} SOURCES)
  foreach(source IN LISTS all)
    get_source_file_property(part ${source} UNITY_GROUP)
    get_filename_component(path ${source} ABSOLUTE)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(NOT part AND NOT options AND source MATCHES "[.]cc$" AND EXISTS ${path})
      list(APPEND sources ${source})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  list(LENGTH sources count)
  if(count EQUAL 0)
    return()
  endif()
  execute_process(COMMAND ${SLUICE_PYTHON} -I ${PROJECT_SOURCE_DIR}/tools/unity_parts.py ${sources}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE parts
    COMMAND_ERROR_IS_FATAL ANY)
  foreach(source part IN ZIP_LISTS sources parts)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${part})
  endforeach()
endfunction()

# Makes the target's sources read cmake/precompiled/HEADER.h first, because headers of other
# projects take more than half of the compile time of most sources. The header includes no header of
# this project, because a change would recompile everything. A source still includes every header
# that it uses, because clang-tidy reads it without the precompiled header. The header is compiled
# once for all targets with the same further OPTIONS.
function(sluice_precompile target header)
  # The preset fuzz compiles few sources with clang, and ccache has other conditions for clang.
  if(NOT SLUICE_PRECOMPILE OR SLUICE_SANITIZER STREQUAL "fuzzer")
    return()
  endif()
  # GCC 12 does not treat a precompiled <string> as a system header, and reports overruns that do
  # not exist.
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

# Compiles a target with -O1, which takes three quarters of the time of -O2.
function(sluice_cold target)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# Applies the settings that sluice_library and sluice_executable share.
macro(sluice_finish_target name)
  sluice_target_settings(${name})
  if(NOT ARG_HOT)
    sluice_cold(${name})
  endif()
  sluice_unite(${name})
  if(ARG_PRECOMPILED)
    sluice_precompile(${name} ${ARG_PRECOMPILED})
  endif()
endmacro()

# sluice_library(name SOURCES ... [DEPS public dependencies ...] [PRECOMPILED header] [HOT]) makes a
# static library. HOT is for code whose speed affects a benchmark.
function(sluice_library name)
  cmake_parse_arguments(ARG "HOT" "PRECOMPILED" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  sluice_finish_target(${name})
endfunction()

# sluice_executable(name SOURCES ... [DEPS ...] [PRECOMPILED header]) makes an executable.
function(sluice_executable name)
  cmake_parse_arguments(ARG "HOT" "PRECOMPILED" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  sluice_finish_target(${name})
endfunction()

# Builds all programs that ctest runs.
add_custom_target(sluice_tests)

# sluice_ctest(name program [FILTER filter] [ENVIRONMENT NAME=value ...] [SLOW]) makes a run of a
# GoogleTest program a test of ctest. The program reports its tests one by one in gtest/NAME.xml of
# the build folder. The test's label is its folder. `./test --quick` leaves out SLOW tests, and
# ctest starts them first.
function(sluice_ctest name program)
  cmake_parse_arguments(ARG "SLOW" "FILTER" "ENVIRONMENT" ${ARGN})
  if(ARG_FILTER)
    set(filter --gtest_filter=${ARG_FILTER})
  endif()
  add_test(NAME ${name} COMMAND ${program} --gtest_brief=1 ${filter}
    --gtest_output=xml:${CMAKE_BINARY_DIR}/gtest/${name}.xml)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${ARG_ENVIRONMENT}"
    TIMEOUT $<IF:$<OR:$<BOOL:${SLUICE_SANITIZER}>,$<BOOL:${CMAKE_CROSSCOMPILING}>>,3600,900>)
  sluice_label(${name} ${ARG_SLOW})
endfunction()

# Gives a test of ctest its labels.
function(sluice_label name slow)
  file(RELATIVE_PATH labels ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(slow)
    list(APPEND labels slow)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}")
endfunction()

# sluice_test(name SOURCES ... [DEPS ...] [PRECOMPILED header] [OPTIMIZED] [SHARDS n] [SLOW])
# makes a GoogleTest program that is one test to ctest, because a process for each of its tests
# would take longer than most of the tests. SHARDS splits it into n tests of ctest, NAME_1 and so
# on, which run at the same time and share the program's tests. For SLOW see sluice_ctest. The
# program's own code is optimised only if it is OPTIMIZED, because most of it runs once. The code
# under test is always optimised. With a sanitizer the tests are optimised too, because they are
# slow.
function(sluice_test name)
  cmake_parse_arguments(ARG "OPTIMIZED;SLOW" "PRECOMPILED;SHARDS" "SOURCES;DEPS" ${ARGN})
  set(slow "")
  if(ARG_SLOW)
    set(slow SLOW)
  endif()
  sluice_executable(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} sluice_test_main)
  target_compile_definitions(${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED test)
  endif()
  set(optimisation "")
  if(NOT ARG_OPTIMIZED AND NOT SLUICE_SANITIZER)
    set(optimisation -O0)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  sluice_precompile(${name} ${ARG_PRECOMPILED} ${optimisation})
  add_dependencies(sluice_tests ${name})
  if(NOT ARG_SHARDS)
    sluice_ctest(${name} ${name} ${slow})
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    sluice_ctest(${name}_${shard} ${name} ${slow}
      ENVIRONMENT GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
  endforeach()
endfunction()
