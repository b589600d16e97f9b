// Reads input tensors, which may be raw bytes or typed contents. Nothing is allocated or copied
// before datatype, shape and size have been checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace sluice {

// One input of a request. `raw` is nullptr if the input came as typed contents.
struct InputTensor {
  const inference::ModelInferRequest::InferInputTensor* header = nullptr;
  const std::string* raw = nullptr;
};

// Returns the inputs of `message` in the order of `names`; absent inputs have a null header.
// Returns InvalidArgument ("input") for a name that is not in `names`, a duplicate, tensor
// parameters, typed contents in addition to raw_input_contents, or a number of raw_input_contents
// that differs from the number of inputs.
absl::StatusOr<std::vector<InputTensor>> FindInputs(const inference::ModelInferRequest& message,
                                                    std::span<const absl::string_view> names);

// A dense [rows, columns] matrix of INT32 or INT64 within the message.
struct IntMatrix {
  const char* data = nullptr;  // not aligned
  int element_bytes = 0;       // 4 or 8
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t At(int64_t row, int64_t column) const {
    const char* at = data + (row * columns + column) * element_bytes;
    if (element_bytes == 4) {
      int32_t value;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    int64_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
};

struct Extent {
  int64_t min;
  int64_t max;
};

// Reads an INT32 tensor or, if `int64_allowed`, an INT64 tensor whose shape is within the extents.
// Requires both maxima to be at most 2^31, so that their product with the element size does not
// overflow. Returns InvalidArgument ("input") for any other tensor.
absl::StatusOr<IntMatrix> ReadInts(const InputTensor& tensor, bool int64_allowed, Extent rows,
                                   Extent columns);

// A dense [rows, columns, width] tensor of FP32 or BF16 within the message.
struct FloatRows {
  const char* data = nullptr;  // not aligned
  bool bf16 = false;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t width = 0;

  // Widens the `width` values at (row, column) into `out`.
  void Read(int64_t row, int64_t column, float* out) const;
};

// Reads an FP32 or BF16 tensor in the same way as ReadInts; BF16 is accepted only as raw contents.
// Requires `width` to be at most 2^16.
absl::StatusOr<FloatRows> ReadFloats(const InputTensor& tensor, Extent rows, Extent columns,
                                     int64_t width);

// Reads a BYTES tensor of shape [rows, 1]. The views refer to the message.
absl::StatusOr<std::vector<std::string_view>> ReadStrings(const InputTensor& tensor, Extent rows);

// Returns InvalidArgument with the reason "input".
absl::Status InputError(absl::string_view name, absl::string_view problem);

}  // namespace sluice
