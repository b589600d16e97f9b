// Returning errors to the caller in one line.
//
//   absl::StatusOr<Model> Load(const std::string& path) {
//     SLUICE_RETURN_IF_ERROR(CheckPath(path));
//     SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
//     return Parse(text);
//   }
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates an expression of type absl::Status once and returns it from the function unless it is
// OK.
#define SLUICE_RETURN_IF_ERROR(...)                                        \
  do {                                                                     \
    if (absl::Status sluice_status = (__VA_ARGS__); !sluice_status.ok()) { \
      return sluice_status;                                                \
    }                                                                      \
  } while (false)

// Evaluates an expression of type absl::StatusOr<T> once. Assigns its value to `target`, which may
// be a declaration, or returns its status from the function. The target must not contain a comma.
// The macro is more than one statement, so after `if` it needs a block.
#define SLUICE_ASSIGN_OR_RETURN(target, ...) \
  SLUICE_ASSIGN_OR_RETURN_COUNTED_(__COUNTER__, target, (__VA_ARGS__))

// The counter is expanded here, before it becomes a part of a name.
#define SLUICE_ASSIGN_OR_RETURN_COUNTED_(counter, target, expression) \
  SLUICE_ASSIGN_OR_RETURN_NAMED_(counter, target, expression)

#define SLUICE_ASSIGN_OR_RETURN_NAMED_(counter, target, expression) \
  auto sluice_status_or_##counter = expression;                     \
  if (!sluice_status_or_##counter.ok()) {                           \
    return std::move(sluice_status_or_##counter).status();          \
  }                                                                 \
  target = *std::move(sluice_status_or_##counter) /* NOLINT(bugprone-macro-parentheses) */
