// A trial of whether a candidate computes rows as the engine requires. A candidate computes the
// rows of an op: it is an algorithm of the vendor's library or a kernel of this project. It serves
// only if it passes on the device, with the weights and sizes of the model that it will serve:
//   - The bits of a row are the same in every batch, for every number of rows, place of the row and
//     neighbours.
//   - Rows agree with a reference in double, within a bound that the trial's maker states.
//   - A value that is not finite reaches the output of its own row, because the engine recognises a
//     broken row by it, and changes no other row.
//
// The mechanism is the same for every op. Its maker supplies the rows, their batches, the expected
// outputs of some of them, and the way to run a candidate on a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

struct RowCheckSpec {
  struct Expected {
    int32_t row;
    // The row's outputs in double. If one is not finite, the candidate's output must not be finite
    // either; otherwise it must be within `bounds` of it.
    std::vector<double> values, bounds;
  };

  // The initial bytes of outputs that a candidate adds to. Read as a number, they have nearly the
  // same value in both types.
  static constexpr uint8_t kKept = 0x3F;

  int64_t width = 0;            // the values of a row's output
  bool half = false;            // whether they are bfloat16, not float
  uint8_t initial_byte = 0xFF;  // the value of each output byte before a run
  // The rows of each batch, by number, in the order of their outputs. The first has all rows.
  std::vector<std::vector<int32_t>> batches = {};
  std::vector<Expected> expected = {};

  size_t value_bytes() const;
  double kept() const;  // kKept as a number
  size_t row_bytes() const { return width * value_bytes(); }
};

class RowCheck {
 public:
  // Queues a run of a candidate on one of the spec's batches, which writes the batch's rows to
  // `out` on the device, one after another.
  using Run = std::function<void(size_t batch, void* out, DeviceStream& stream)>;

  // Allocates the outputs of a trial. Errors come from the device, which outlives the trial.
  static absl::StatusOr<RowCheck> Make(RowCheckSpec spec, Device& device);

  const RowCheckSpec& spec() const { return spec_; }
  // Returns FailedPrecondition with the fault if the candidate fails; other errors come from the
  // device.
  absl::Status Check(const Run& run, DeviceStream& stream) const;

 private:
  explicit RowCheck(RowCheckSpec spec) : spec_(std::move(spec)) {}

  absl::Status RunBatch(const Run& run, size_t batch, void* result, DeviceStream& stream) const;
  absl::Status CheckValues() const;
  absl::Status CheckBits(size_t batch) const;
  // Returns whether two rows have the same bits; all NaNs are equal.
  bool SameRow(const char* a, const char* b) const;
  const char* RowOf(int32_t row) const;  // in whole_

  RowCheckSpec spec_;
  std::vector<int32_t> places_;  // in the first batch, of each row
  DeviceMemory out_;
  PinnedMemory whole_, part_;  // the outputs of the first batch, and of another one
};

// Returns element `i` of an array of bfloat16 or float.
double ReadElement(const void* values, size_t i, bool half);

// Device memory for a trial's inputs. The first failure is kept; Put and Room then return nullptr.
class CheckInputs {
 public:
  CheckInputs(Device& device, DeviceStream& stream) : device_(device), stream_(stream) {}

  template <typename T>
  const T* Put(const std::vector<T>& values) {
    return static_cast<const T*>(PutBytes(values.data(), values.size() * sizeof(T)));
  }
  // Returns memory for `count` values with any content.
  template <typename T>
  T* Room(int64_t count) {
    return static_cast<T*>(Allocate(static_cast<size_t>(count) * sizeof(T)));
  }
  // Returns the bytes at `device` on the host.
  absl::StatusOr<std::vector<std::byte>> Fetch(const void* device, size_t bytes);
  const absl::Status& status() const { return status_; }

 private:
  const void* PutBytes(const void* values, size_t bytes);
  void* Allocate(size_t bytes);

  Device& device_;
  DeviceStream& stream_;
  std::vector<DeviceMemory> memory_;
  absl::Status status_;
};

// Exact products, in double, and the sums of the magnitudes of each column of the weight.
struct ExactProducts {
  std::vector<std::vector<double>> sums;  // [rows][n]
  std::vector<double> absolute;           // [n]
};
// Adds the products of rows `x`, [rows][k], by `weight` [k, n] on the device, and `bias` [n] unless
// it is nullptr, to `initial`. Both are bfloat16 if `half`, else float.
absl::StatusOr<ExactProducts> MultiplyExactly(CheckInputs& inputs,
                                              const std::vector<std::vector<double>>& x,
                                              const void* weight, const void* bias, int64_t n,
                                              bool half, double initial);

}  // namespace sluice
