// Regular expressions in the syntax of tokenizer.json files.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

// Translates an expression from the syntax of Oniguruma (with the defaults of the library
// `tokenizers`, which are Ruby's) to ICU's syntax with the flags for multiple lines and Unix lines.
// Both syntaxes share most constructs. These differ:
//   \h, \H            a hexadecimal digit, and any other character
//   \v                the vertical tab
//   \w                has no joiners (U+200C and U+200D)
//   [[:punct:]]       includes symbols; \p{Punct} does not
//   [[:xdigit:]]      digits of ASCII only, as \p{XDigit}
//   [[:word:]]        as \w and \p{Word}
//   \p{^Name}         \P{Name}
//   \b, \B            are between \w and other characters, without exceptions for marks
//   {,n}              {0,n}
//   {n}?              an optional repetition, not a reluctant one
//   {n,m}+            a repetition of a repetition, not a possessive one
//   (?m)              the dot matches line ends
//   (?i)\p{Name}      only sets match other cases of their characters
//   a(?i)b|c          a(?i:b|c)
//   { and }           literal characters where they do not form a repetition
// Returns InvalidArgument for constructs that ICU does not have.
absl::StatusOr<std::string> FromOniguruma(std::string_view expression);

}  // namespace sluice::tokenize
