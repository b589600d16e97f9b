// SLUICE_CHECK: for broken invariants of ours, in every build type. Errors that a caller can meet are
// absl::Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SLUICE_CHECK(condition)                                                              \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (0)
