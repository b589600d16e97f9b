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

#define SLUICE_MACRO_CONCAT_INNER_(a, b) a##b
#define SLUICE_MACRO_CONCAT_(a, b) SLUICE_MACRO_CONCAT_INNER_(a, b)

// Evaluates an expression of type absl::Status once and returns it from the function unless it is
// OK.
#define SLUICE_RETURN_IF_ERROR(...)                                        \
  do {                                                                     \
    if (absl::Status sluice_status = (__VA_ARGS__); !sluice_status.ok()) { \
      return sluice_status;                                                \
    }                                                                      \
  } while (false)

// Evaluates an expression of type absl::StatusOr<T> once and assigns its value to `target`, which
// may be a declaration, or returns its status from the function. The target must not contain a
// comma, and the macro is more than one statement: it needs a block of its own after `if`.
#define SLUICE_ASSIGN_OR_RETURN(target, ...)                                                \
  SLUICE_ASSIGN_OR_RETURN_TO_(SLUICE_MACRO_CONCAT_(sluice_status_or_, __COUNTER__), target, \
                              (__VA_ARGS__))

#define SLUICE_ASSIGN_OR_RETURN_TO_(result, target, expression) \
  auto result = expression;                                     \
  if (!result.ok()) return std::move(result).status();          \
  target = *std::move(result) /* NOLINT(bugprone-macro-parentheses) */
