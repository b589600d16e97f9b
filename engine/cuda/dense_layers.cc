#include "engine/cuda/dense_layers.h"

#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/bfloat16.h"

namespace sluice {
namespace {

// Ascending. Beside powers of two, because tiles end there.
std::vector<int32_t> RowCounts() {
  std::vector<int32_t> counts;
  for (int32_t rows = 1; rows <= DenseLayers::kMostRows; rows *= 2) {
    for (int32_t beside : {rows - 1, rows, rows + 1}) {
      const bool fresh = counts.empty() || beside > counts.back();
      if (beside >= 1 && beside <= DenseLayers::kMostRows && fresh) counts.push_back(beside);
    }
  }
  return counts;
}

}  // namespace

// Inputs and outputs of the layers that are tried for one shape.
struct DenseLayers::Trial {
  const DenseShape& shape;
  const void* weight;
  const void* bias;
  DeviceMemory x, out;
  PinnedMemory whole, part;  // outputs: of all rows, and of some

  size_t element_bytes() const {
    return shape.half ? sizeof(kernels::cuda::BFloat16) : sizeof(float);
  }
  size_t x_row_bytes() const { return static_cast<size_t>(shape.k) * element_bytes(); }
  size_t out_row_bytes() const { return static_cast<size_t>(shape.n) * element_bytes(); }

  absl::Status Allocate(Device& device);
  absl::Status FillX(Device& device, DeviceStream& stream) const;
  // `rows` rows of x, from `first` on.
  absl::Status Run(const DenseLayer& layer, int32_t first, int32_t rows, void* result,
                   DeviceStream& stream) const;
  // FailedPrecondition: the rows' bits depend on their number or on their place.
  absl::Status Check(const DenseLayer& layer, DeviceStream& stream) const;
};

absl::Status DenseLayers::Trial::Allocate(Device& device) {
  auto inputs = device.Allocate(kMostRows * x_row_bytes());
  if (!inputs.ok()) return inputs.status();
  x = *std::move(inputs);
  auto outputs = device.Allocate(kMostRows * out_row_bytes());
  if (!outputs.ok()) return outputs.status();
  out = *std::move(outputs);
  for (PinnedMemory* fetched : {&whole, &part}) {
    auto memory = device.AllocatePinned(kMostRows * out_row_bytes());
    if (!memory.ok()) return memory.status();
    *fetched = *std::move(memory);
  }
  return absl::OkStatus();
}

absl::Status DenseLayers::Trial::FillX(Device& device, DeviceStream& stream) const {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const size_t bytes = kMostRows * x_row_bytes();
  auto staging = device.AllocatePinned(bytes);
  if (!staging.ok()) return staging.status();
  for (size_t i = 0; i < bytes / element_bytes(); ++i) {
    const float value = uniform(random);
    if (shape.half) {
      static_cast<kernels::cuda::BFloat16*>(staging->get())[i] =
          kernels::cuda::Narrow<kernels::cuda::BFloat16>(value);
    } else {
      static_cast<float*>(staging->get())[i] = value;
    }
  }
  stream.CopyToDevice(x.get(), staging->get(), bytes);
  return stream.Synchronize();
}

absl::Status DenseLayers::Trial::Run(const DenseLayer& layer, int32_t first, int32_t rows,
                                     void* result, DeviceStream& stream) const {
  const auto bytes = static_cast<size_t>(rows) * out_row_bytes();
  stream.Fill(out.get(), 0, bytes);  // what an accumulating layer adds to
  layer.Run({.x = static_cast<const char*>(x.get()) + static_cast<size_t>(first) * x_row_bytes(),
             .weight = weight,
             .bias = bias,
             .rows = rows,
             .out = out.get()},
            stream);
  stream.CopyToHost(result, out.get(), bytes);
  return stream.Synchronize();
}

absl::Status DenseLayers::Trial::Check(const DenseLayer& layer, DeviceStream& stream) const {
  constexpr size_t kAlignment = 256;
  const auto aligned = static_cast<int32_t>(kAlignment / std::gcd(kAlignment, x_row_bytes()));
  absl::Status status = Run(layer, 0, kMostRows, whole.get(), stream);
  for (const int32_t rows : RowCounts()) {
    if (!status.ok()) return status;
    // The last ones, so that each is at another place than among all.
    const int32_t first = (kMostRows - rows) / aligned * aligned;
    status = Run(layer, first, rows, part.get(), stream);
    const char* const expected =
        static_cast<const char*>(whole.get()) + static_cast<size_t>(first) * out_row_bytes();
    const bool same =
        std::memcmp(part.get(), expected, static_cast<size_t>(rows) * out_row_bytes()) == 0;
    if (status.ok() && !same) return absl::FailedPreconditionError("rows depend on their number");
  }
  return status;
}

absl::Status DenseLayers::Choose(const Trial& trial, std::unique_ptr<DenseLayer>* chosen) {
  for (std::unique_ptr<DenseLayer>& layer : device_.DenseCandidates(trial.shape)) {
    const absl::Status status = trial.Check(*layer, stream_);
    if (absl::IsUnavailable(status)) return status;
    if (!status.ok()) continue;  // it cannot do all sizes, or not alike
    *chosen = std::move(layer);
    break;
  }
  return absl::OkStatus();
}

absl::StatusOr<const DenseLayer*> DenseLayers::Find(const DenseShape& shape, const void* weight,
                                                    const void* bias) {
  const auto [entry, fresh] = layers_.try_emplace(shape);
  if (!fresh) return entry->second.get();
  Trial trial{
      .shape = shape, .weight = weight, .bias = bias, .x = {}, .out = {}, .whole = {}, .part = {}};
  absl::Status status = trial.Allocate(device_);
  if (status.ok()) status = trial.FillX(device_, stream_);
  if (status.ok()) status = Choose(trial, &entry->second);
  if (!status.ok()) return status;
  return entry->second.get();
}

}  // namespace sluice
