#include "kernels/cuda/attention.h"
#include "kernels/cuda/hopper_attention.h"
#include "tests/kernels/cuda/attention_fixture.h"
#include "tests/kernels/cuda/cost_case_list.h"
#include "tests/kernels/cuda/relative_attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

// A head of each width that has a kernel, with the limits of shared memory that select different
// kernels. With `window`, scores have a soft cap too.
template <typename T>
void AddAttention(Cases& cases, int64_t window) {
  using Places = std::vector<std::pair<int32_t, int32_t>>;
  const auto add = [&](const std::string& which, int64_t dim, int32_t limit, const Places& places,
                       const std::string& shape) {
    cases.Add(absl::StrCat(window == 0 ? "Attention " : "Attention in a window ", NameOf<T>(), " ",
                           dim, which),
              absl::StrCat(shape, ", 4/2 heads of ", dim), [=](DeviceLab& lab, Random& random) {
                const reference::AttentionShape heads = {.q_heads = 4,
                                                         .kv_heads = 2,
                                                         .head_dim = dim,
                                                         .window = window,
                                                         .soft_cap = window == 0 ? 0.0 : 30.0};
                const auto sequences = RandomSequences<T>(random, heads, places);
                (void)RunAttention<T>(lab, random, heads, sequences, /*causal=*/true, {},
                                      {limit, lab.device().info().processors});
              });
  };
  const int32_t prompt = std::is_same_v<T, float> ? 32 : 64;
  const Places prefill = {{0, prompt}, {0, prompt}}, decode(8, {127, 1});
  const std::string what = absl::StrCat("prefill of 2 x ", prompt);
  constexpr int32_t kMost = 227 << 10;
  for (const int64_t dim : {64, 128, 256}) {
    for (const int64_t width : {dim, dim - 1}) {
      add("", width, kMost, prefill, what);
      for (const int32_t kib : {163, 99}) {
        const int32_t bytes = AttentionSharedBytes<T>(static_cast<int32_t>(width), kib << 10);
        if (bytes == AttentionSharedBytes<T>(static_cast<int32_t>(width), kMost)) continue;
        add(absl::StrCat(" within ", kib, " KiB"), width, kib << 10, prefill, what);
      }
    }
  }
  add(" decode", 128, kMost, decode, "8 rows on 128 positions");
  const auto long_decode = [&](int32_t rows, int64_t dim, int32_t context) {
    add(absl::StrCat(" decode of ", rows), dim, kMost, Places(rows, {context - 1, 1}),
        absl::StrCat(rows, rows == 1 ? " row" : " rows", " on ", context, " positions"));
  };
  for (const int64_t dim : {64, 256}) {
    long_decode(1, dim, 1024);
    long_decode(1, dim - 1, 1024);
  }
  long_decode(1, kOddHead, 1024);
  if (window != 0) return long_decode(1, kHead, 1024);
  long_decode(1, kHead, 8192);
  if constexpr (!std::is_same_v<T, float>) long_decode(8, kHead, 8192);
}

void AddHopperAttention(Cases& cases, int64_t dim) {
  cases.Add(
      absl::StrCat("HopperAttention bf16 ", dim),
      absl::StrCat("prefill of 2 x 64, 4/2 heads of ", dim), [=](DeviceLab& lab, Random& random) {
        const reference::AttentionShape heads = {.q_heads = 4, .kv_heads = 2, .head_dim = dim};
        const auto sequences = RandomSequences<BFloat16>(random, heads, {{0, 64}, {0, 64}});
        (void)RunAttention<BFloat16>(lab, random, heads, sequences, /*causal=*/true, {},
                                     {.processors = lab.device().info().processors},
                                     &AttentionOnHopper);
      });
}

template <typename T>
void AddRelativeAttention(Cases& cases) {
  cases.Add(absl::StrCat("RelativeAttention ", NameOf<T>(), " 64"),
            "prefill of 2 x 64, 2 heads of 64", [](DeviceLab& lab, Random& random) {
              const RelativeHeads heads(random, 2, 64, 32, 1.1, 64);
              const auto sequences = RandomSequences<T>(random, heads.shape, {{0, 64}, {0, 64}});
              (void)RunRelativeAttention<T>(lab, random, heads.shape, sequences,
                                            {.processors = lab.device().info().processors});
            });
}

}  // namespace

void AddAttentionCases(Cases& cases) {
  AddRelativeAttention<BFloat16>(cases);
  AddRelativeAttention<float>(cases);
  for (const int64_t dim : {64, 128}) AddHopperAttention(cases, dim);
  for (const int64_t window : {0, 700}) {
    AddAttention<BFloat16>(cases, window);
    AddAttention<float>(cases, window);
  }
}

}  // namespace sluice::kernels::cuda
