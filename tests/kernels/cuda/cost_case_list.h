// Shared by the lists of cost cases (cost_cases.h).
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/rows.h"
#include "tests/kernels/common/values.h"
#include "tests/kernels/cuda/cost_cases.h"
#include "tests/kernels/cuda/packed_weights.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

using Random = std::mt19937_64;

inline constexpr int32_t kRows = 64;
// Widths with and without accesses of 16 bytes.
inline constexpr int32_t kDim = 2048, kOddDim = 2047, kHead = 128, kOddHead = 127;

template <typename T>
const char* NameOf() {
  return std::is_same_v<T, float> ? "f32" : "bf16";
}

inline LiveRows Live(DeviceLab& lab, int32_t rows) { return {lab.Put<int32_t>({rows}), rows}; }

template <typename T>
T* Values(DeviceLab& lab, Random& random, int64_t n, float scale = 1.0f) {
  return lab.Put(RandomValues<T>(random, n, scale));
}

// Cases in the order of their list.
class Cases {
 public:
  std::vector<CostCase> Take() { return std::move(cases_); }

  void Add(std::string name, std::string shape, std::function<void(DeviceLab&, Random&)> run) {
    cases_.push_back({std::move(name), std::move(shape), std::move(run)});
  }
  // Adds "<op> <T>" and, for widths that allow no wide accesses, "<op> <T> odd". `run` is called
  // with the lab, the random numbers and a width.
  template <typename T, typename Run>
  void AddWidths(const std::string& op, int32_t even, int32_t odd, Run run) {
    for (const int32_t width : {even, odd}) {
      Add(absl::StrCat(op, " ", NameOf<T>(), width == odd ? " odd" : ""),
          absl::StrCat(kRows, " rows of ", width),
          [=](DeviceLab& lab, Random& random) { run(lab, random, width); });
    }
  }

 private:
  std::vector<CostCase> cases_;
};

template <typename T>
T* PackedValues(DeviceLab& lab, Random& random, int64_t matrices, int32_t k, int32_t n) {
  return lab.Put(Packed(RandomValues<T>(random, matrices * k * n, 1.0f), matrices, k, n));
}

void AddAttentionCases(Cases& cases);
void AddProductCases(Cases& cases);

}  // namespace sluice::kernels::cuda
