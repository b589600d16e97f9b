# sluice_simt_kernels(name SOURCES *.cu ...) compiles device code for the emulator of kernels/simt,
# with a call before every load and store. The result is an object library, so that every kernel is
# linked into its users, and the check that every kernel was launched covers all of them. The
# optimisation is the same in every preset. Accesses are not merged and calls are not turned into
# tail calls, because the emulator's cost counters (kernels/simt/costs.h) count each access where
# the source has it.
function(sluice_simt_kernels name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX)
  add_library(${name} OBJECT ${ARG_SOURCES})
  sluice_target_settings(${name})
  target_compile_definitions(${name} PRIVATE SLUICE_SIMT)
  target_compile_options(${name} PRIVATE -fno-sanitize=address -fsanitize=thread
    "SHELL:--param tsan-instrument-func-entry-exit=0"
    -O2 -fno-tree-vectorize -fno-store-merging -fno-expensive-optimizations
    -fno-optimize-sibling-calls)
endfunction()
