// Arrays that numpy.savez or numpy.savez_compressed wrote.
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

// The bytes of a .npz file: a ZIP archive, stored or deflated, of .npy files with numbers of the
// types float32, float64, int32 and int64 in C order. Nothing in it is trusted: InvalidArgument
// names the entry and what is wrong with it, an array beyond 2^28 numbers or an archive beyond 4
// GiB for example.
absl::StatusOr<std::map<std::string, Array>> ReadNpz(std::string_view file);

}  // namespace sluice::verify
