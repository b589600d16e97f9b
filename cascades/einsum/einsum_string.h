// Einsum strings in the format of numpy and PyTorch: "bld,lde->ble".
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// Returns the cascade of one einsum, Z of A and B or of A only. Each letter is a rank whose size
// has the letter as its symbol. Without "->" the result has the letters that appear once, in
// alphabetical order. A letter twice in one operand means its diagonal. Blanks are ignored. Returns
// InvalidArgument, with the column, for anything else, including "..." and three or more operands.
absl::StatusOr<Cascade> ParseEinsumString(std::string_view text);

// Returns the sizes of a list such as "b=8,l=256". Returns InvalidArgument, with the entry, if one
// is not a name, '=' and an integer from 1 to kMaxNumber, or repeats a name.
absl::StatusOr<Sizes> ParseSizes(std::string_view text);

}  // namespace sluice::einsum
