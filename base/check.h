// SLUICE_CHECK(condition) aborts, in every build type, if a broken invariant of this program is
// found. Errors that a caller can cause are absl::Status instead.
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
