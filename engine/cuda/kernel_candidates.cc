#include "engine/cuda/kernel_candidates.h"

#include <cmath>

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_projection.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using cuda::BFloat16;
using cuda::Stream;

template <typename T>
absl::Status PortableAttentionSupports(const DeviceInfo& device, const AttentionShape& shape) {
  if (shape.head_dim > cuda::kMaxHeadDim) {
    return absl::UnimplementedError(absl::StrCat(
        "head_dim is ", shape.head_dim, "; the CUDA kernels support at most ", cuda::kMaxHeadDim));
  }
  const int32_t limit = device.shared_bytes_limit;
  const int32_t bytes = cuda::AttentionSharedBytes<T>(shape.head_dim, limit);
  if (bytes <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "head_dim ", shape.head_dim, " in ", sizeof(T) == sizeof(BFloat16) ? "bf16" : "f32",
      " needs ", bytes, " bytes of shared memory a block, the GPU has ", limit));
}

constexpr char kHopper[] = "hopper";

// The tuned kernels copy rows in pieces of 16 bytes.
constexpr int32_t kHopperAligned = 16 / sizeof(BFloat16);

bool IsHopper(const DeviceInfo& device) { return device.architecture == "sm_90"; }

absl::Status HopperHas(const DeviceInfo& device, int32_t shared_bytes) {
  if (!IsHopper(device)) return absl::UnimplementedError("it is for compute capability 9.0");
  if (shared_bytes <= device.shared_bytes_limit) return absl::OkStatus();
  return absl::UnimplementedError("the GPU has too little shared memory");
}

absl::Status HopperAttentionSupports(const DeviceInfo& device, const AttentionShape& shape) {
  if (shape.head_dim % kHopperAligned != 0 || shape.head_dim > cuda::kMaxHopperHeadDim) {
    return absl::UnimplementedError(absl::StrCat("head_dim must be a multiple of ", kHopperAligned,
                                                 " up to ", cuda::kMaxHopperHeadDim));
  }
  if (shape.window != 0 || shape.soft_cap != 0 || shape.biased || shape.silu_share != 0) {
    return absl::UnimplementedError("scores must be neither capped nor biased, and see all keys");
  }
  return HopperHas(device, cuda::HopperAttentionSharedBytes(shape.head_dim));
}

const AttentionCandidate<BFloat16>& HopperAttention() {
  static const auto* const candidate = new AttentionCandidate<BFloat16>{
      .tier = kHopper, .supports = &HopperAttentionSupports, .run = &cuda::AttentionOnHopper};
  return *candidate;
}

absl::Status HopperProductSupports(const DeviceInfo& device, const GroupedProductShape& shape) {
  if (shape.k % kHopperAligned != 0 || shape.n % kHopperAligned != 0) {
    return absl::UnimplementedError(absl::StrCat("widths must be multiples of ", kHopperAligned));
  }
  return HopperHas(device, cuda::HopperSharedBytes());
}

const GroupedProductCandidate<BFloat16>& HopperProduct() {
  static const auto* const candidate =
      new GroupedProductCandidate<BFloat16>{.tier = kHopper,
                                            .layout = cuda::WeightLayout::kWarpgroups,
                                            .supports = &HopperProductSupports,
                                            .run = &cuda::ProjectOnHopper};
  return *candidate;
}

// The same for many rows. For few rows, the products are those of the portable kernels. If a GPU's
// products of both kinds differ in a bit, the check refuses this candidate.
const GroupedProductCandidate<BFloat16>& HopperAndFewRowsProduct() {
  static const auto* const candidate = new GroupedProductCandidate<BFloat16>{
      .tier = "hopper with few rows",
      .layout = cuda::WeightLayout::kWarpgroups,
      .supports = &HopperProductSupports,
      .run =
          [](Stream& stream, const cuda::ProjectionArgs<BFloat16>& args) {
            if (!cuda::ProjectFewRowsOfGroups(stream, args)) cuda::ProjectOnHopper(stream, args);
          },
      .run_gated = &cuda::ProjectGatedOfGroups};
  return *candidate;
}

}  // namespace

std::string ToString(const AttentionShape& shape) {
  return absl::StrCat("attention of ", shape.q_heads, "/", shape.kv_heads, " heads of ",
                      shape.head_dim, shape.causal ? "" : ", in both directions",
                      shape.xsa == kernels::XsaForm::kOff ? "" : ", XSA",
                      shape.gated ? " with gates" : "",
                      shape.window == 0 ? "" : absl::StrCat(", window ", shape.window),
                      shape.soft_cap == 0 ? "" : ", soft cap", shape.biased ? ", bias" : "",
                      shape.silu_share == 0 ? "" : ", SiLU");
}

float AttentionShape::ScoreScale() const {
  return scale != 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
}

std::string ToString(const GroupedProductShape& shape) {
  std::string text = absl::StrCat("the product of ", shape.k, " x ", shape.n);
  if (shape.matrices > 1) absl::StrAppend(&text, " by ", shape.matrices, " matrices");
  absl::StrAppend(&text, shape.bias ? ", bias" : "", shape.accumulate ? ", accumulate" : "",
                  shape.activate ? ", activation" : "", shape.gated ? " of a gate" : "",
                  shape.gate_layer ? " with its layer" : "");
  return text;
}

template <typename T>
const AttentionCandidate<T>& PortableAttention() {
  static const auto* const candidate =
      new AttentionCandidate<T>{.tier = "portable",
                                .supports = &PortableAttentionSupports<T>,
                                .run = [](Stream& stream, const cuda::AttentionArgs<T>& args) {
                                  cuda::Attention(stream, args);
                                }};
  return *candidate;
}

template <typename T>
const GroupedProductCandidate<T>& PortableProduct() {
  static const auto* const candidate = new GroupedProductCandidate<T>{
      .tier = "portable",
      .layout = cuda::WeightLayout::kPanels,
      .supports = [](const DeviceInfo&, const GroupedProductShape&) { return absl::OkStatus(); },
      .run = [](Stream& stream,
                const cuda::ProjectionArgs<T>& args) { cuda::Project(stream, args); },
      .run_gated =
          [](Stream& stream, const cuda::ProjectionArgs<T>& gate,
             const cuda::ProjectionArgs<T>& up) { return cuda::ProjectGated(stream, gate, up); }};
  return *candidate;
}

template <typename T>
KernelCandidates<T> AllCandidates() {
  KernelCandidates<T> candidates = {.attention = {PortableAttention<T>()},
                                    .products = {PortableProduct<T>()}};
  if constexpr (std::is_same_v<T, BFloat16>) {
    candidates.attention.push_back(HopperAttention());
    candidates.products = {HopperProduct(), HopperAndFewRowsProduct(), PortableProduct<T>()};
  }
  return candidates;
}

template <typename T>
std::vector<std::string> TunedTiers(const DeviceInfo& device) {
  if (std::is_same_v<T, BFloat16> && IsHopper(device)) return {kHopper};
  return {};
}

template const AttentionCandidate<float>& PortableAttention();
template const AttentionCandidate<BFloat16>& PortableAttention();
template const GroupedProductCandidate<float>& PortableProduct();
template const GroupedProductCandidate<BFloat16>& PortableProduct();
template KernelCandidates<float> AllCandidates();
template KernelCandidates<BFloat16> AllCandidates();
template std::vector<std::string> TunedTiers<float>(const DeviceInfo&);
template std::vector<std::string> TunedTiers<BFloat16>(const DeviceInfo&);

}  // namespace sluice
