// A trial of whether a candidate computes rows as the engine requires. A candidate computes the
// rows of an op: it is an algorithm of the vendor's library or a kernel of this project. It serves
// only if it passes on the device, with the weights and sizes of the model that it will serve:
//   - The bits of a row are the same in every batch, for every number of rows, place of the row and
//     neighbours. They are also the same in every run of a batch (CheckEffort in device.h), whether
//     another stream keeps the device busy or not, and if a launch has so few blocks that each of
//     them has many work items.
//   - Rows agree with a reference in double, within a bound that the trial's maker states.
//   - A value that is not finite reaches the output of its own row, because the engine recognises a
//     broken row by it, and changes no other row.
//
// The mechanism is the same for every op. Its maker supplies the rows, their batches, the expected
// outputs of some of them, and the way to run a candidate on a batch. Bits are compared on the
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

// The numbers of rows that passing candidates are timed with.
inline constexpr int32_t kTimedRows[] = {1, 64, 1024};

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
  // Whether the number of a candidate's blocks depends on the number of processors. Each batch then
  // also runs through a stream that reports one processor.
  bool persistent = false;
  // The rows of each batch, by number, in the order of their outputs. The first has all rows.
  std::vector<std::vector<int32_t>> batches = {};
  std::vector<Expected> expected = {};

  size_t value_bytes() const;
  double kept() const;  // kKept as a number
  size_t row_bytes() const { return width * value_bytes(); }
};

class RowCheck {
 public:
  // One run of a candidate.
  struct Place {
    size_t batch;  // of the spec's batches
    void* out;     // on the device, for the batch's rows one after another
    DeviceStream& stream;
    // The same stream for launches; it may report one processor.
    kernels::cuda::Stream& launches;
  };
  // Queues a run.
  using Run = std::function<void(const Place& place)>;

  // Allocates the outputs of a trial. Errors come from the device, which outlives the trial.
  static absl::StatusOr<RowCheck> Make(RowCheckSpec spec, Device& device);

  const RowCheckSpec& spec() const { return spec_; }
  // Returns FailedPrecondition with the fault if the candidate fails; other errors come from the
  // device. The bits of a candidate that passes are the reference of CheckSame.
  absl::Status Check(const Run& run, DeviceStream& stream);
  // Checks that a candidate gives the rows of these batches the bits of the last candidate that
  // Check was called with. Requires that it passed. Errors are the same.
  absl::Status CheckSame(const Run& run, const std::vector<size_t>& batches, DeviceStream& stream);

 private:
  explicit RowCheck(RowCheckSpec spec, CheckEffort effort)
      : spec_(std::move(spec)), effort_(effort) {}

  absl::Status Allocate(Device& device);
  // Runs the first batch, whose bits become the reference.
  absl::Status RunReference(const Run& run, DeviceStream& stream);
  // Runs a batch repeatedly, `skipped` times less than usual, and compares each run.
  absl::Status CheckBits(const Run& run, size_t batch, int32_t skipped, DeviceStream& stream);
  void Queue(const Run& run, const Place& place) const;
  void Compare(size_t batch, int32_t* differing, DeviceStream& stream) const;
  void KeepBusy() const;
  absl::Status CheckValues() const;
  const char* RowOf(int32_t row) const;  // in whole_

  RowCheckSpec spec_;
  CheckEffort effort_;
  std::vector<int32_t> places_;  // in the first batch, of each row
  DeviceMemory out_;
  DeviceMemory reference_;                         // the outputs of the first batch
  std::vector<DeviceMemory> places_of_;            // in the reference, of the rows of each batch
  DeviceMemory differing_, differing_persistent_;  // how often each row of a batch differed
  PinnedMemory whole_;                             // the reference
  PinnedMemory counts_;                            // of differing_ and differing_persistent_
  std::unique_ptr<DeviceStream> busy_;             // its work is only there to compete
  DeviceMemory busy_rows_, busy_places_, busy_counts_;
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
