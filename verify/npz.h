// Reads arrays that numpy.savez or numpy.savez_compressed wrote.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::verify {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
};

// Reads the bytes of a .npz file: a ZIP archive of .npy files, stored or deflated, with numbers of
// the types float32, float64, int32 and int64 in C order. Nothing in it is trusted: returns
// InvalidArgument that names the entry and the problem, such as an array of more than 2^28 numbers
// or an archive of more than 4 GiB.
absl::StatusOr<std::map<std::string, Array>> ReadNpz(std::string_view file);

}  // namespace sluice::verify
