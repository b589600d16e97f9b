// The safetensors format: 8 bytes of little-endian header size, a JSON header, and the data of the
// tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  std::string_view data;  // exactly product(shape) elements; row-major, not aligned
};

// Returns the entries of a whole file, by ascending place. As in the reference implementation, the
// tensors must fill the data without overlap or hole. Returns InvalidArgument with the fault. Every
// size in the header is checked against the size of the file before it is used.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::string_view file);

}  // namespace sluice
