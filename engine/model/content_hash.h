// A hash of a model's content, by which callers compare the models of two answers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/directory.h"
#include "engine/model/model.h"

namespace sluice {

// Returns 16 hexadecimal digits: a hash of the files of `directory`, the first bytes of each
// tensor, the quantization, and the type of keys and values. Each copy of the files has the same
// hash. Adapters are not part of it.
absl::StatusOr<std::string> ContentHash(const Directory& directory, const Model& model);

}  // namespace sluice
