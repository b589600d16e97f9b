// The kernels of this project that may compute the ops of a model: the portable ones, which run on
// every GPU, and tiers that are tuned for one architecture. A candidate serves only if it passes a
// trial on the device (selected_kernels.h).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/device.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/weight_layout.h"

namespace sluice {

// The parameters that distinguish the attention of two layers.
struct AttentionShape {
  int32_t q_heads, kv_heads, head_dim;
  int32_t max_positions;  // of a sequence
  bool causal;
  kernels::XsaForm xsa = kernels::XsaForm::kOff;
  float eps = 1e-6f;  // of XSA
  bool gated = false;
  int32_t window = 0;
  float soft_cap = 0;
  float scale = 0;  // 0 for 1 / sqrt(head_dim)
  bool biased = false;
  float silu_share = 0;  // 0 for the softmax

  float ScoreScale() const;
  auto operator<=>(const AttentionShape&) const = default;
};
// Tensors on the device that the attention of a layer reads in addition to its inputs.
struct AttentionTensors {
  const float* gate = nullptr;  // [q_heads]
  const float* bias = nullptr;  // [q_heads, 2 * max_positions + kBiasSlack]
};
// Returns a text such as "attention of 32/8 heads of 128".
std::string ToString(const AttentionShape& shape);

// The parameters that distinguish two products by this project's kernels.
struct GroupedProductShape {
  int32_t k, n;
  int32_t matrices = 1;  // one for each position or expert, or 1
  bool bias = false;
  bool position_bias = false;
  bool accumulate = false;
  bool activate = false;
  kernels::Activation activation = {};
  bool gated = false;
  // Whether the gate is the output of a layer of the same rows, with the same properties, that is
  // computed with this one.
  bool gate_layer = false;

  auto operator<=>(const GroupedProductShape&) const = default;
};
// Returns a text such as "the product of 512 x 512 by 256 matrices".
std::string ToString(const GroupedProductShape& shape);

// The weight [matrices, k, n] and the bias of the layer of a product's gate, on the device; null if
// the product has no such layer, or if the layer has no bias.
template <typename T>
struct GateWeights {
  const T* weight = nullptr;
  const T* bias = nullptr;
};

// T is float or BFloat16.
template <typename T>
struct AttentionCandidate {
  std::string tier;  // "portable", or the name of a tuned tier
  // Returns the reason why this cannot compute such attention on such a device.
  std::function<absl::Status(const DeviceInfo& device, const AttentionShape& shape)> supports;
  // Queues attention; may be captured.
  std::function<void(kernels::cuda::Stream& stream, const kernels::cuda::AttentionArgs<T>& args)>
      run;
};

template <typename T>
struct GroupedProductCandidate {
  using Args = kernels::cuda::ProjectionArgs<T>;

  std::string tier;
  kernels::cuda::WeightLayout layout = kernels::cuda::WeightLayout::kPlain;  // of the weight
  std::function<absl::Status(const DeviceInfo& device, const GroupedProductShape& shape)> supports;
  std::function<void(kernels::cuda::Stream& stream, const Args& args)> run;
  // Queues both layers of a gated MLP as one kernel, as ProjectGated does. Returns false if two
  // calls of `run` are faster. May be null.
  std::function<bool(kernels::cuda::Stream& stream, const Args& gate, const Args& up)> run_gated =
      nullptr;

  // Queues both layers, as one kernel or as two.
  void RunBoth(kernels::cuda::Stream& stream, const Args& gate, const Args& up) const {
    if (run_gated != nullptr && run_gated(stream, gate, up)) return;
    run(stream, gate);
    run(stream, up);
  }
};

// The candidates in the order of trial, by measured speed (loadtest/results/gpu).
template <typename T>
struct KernelCandidates {
  std::vector<AttentionCandidate<T>> attention;
  std::vector<GroupedProductCandidate<T>> products;
};

template <typename T>
const AttentionCandidate<T>& PortableAttention();
template <typename T>
const GroupedProductCandidate<T>& PortableProduct();

// Returns the candidates of this build.
template <typename T>
KernelCandidates<T> AllCandidates();
// Returns the names of the tuned tiers that the device has, such as "hopper"; empty if it has none.
template <typename T>
std::vector<std::string> TunedTiers(const DeviceInfo& device);

}  // namespace sluice
