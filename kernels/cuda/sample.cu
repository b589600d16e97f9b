#include "kernels/cuda/sample.h"

#include <cfloat>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/select.h"
#include "kernels/cuda/simt.h"

namespace sluice::kernels::cuda {
namespace {

struct SampleShared {
  SelectShared select;
  double sums[kWarp];
};

__device__ double Uniform(const SampleRequest& request) {
  const PhiloxWords words =
      Philox(request.seed, {{static_cast<uint32_t>(request.token_index),
                             static_cast<uint32_t>(request.token_index >> 32), request.sample, 0}});
  const uint64_t bits = static_cast<uint64_t>(words.word[0]) << 32 | words.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

__device__ int32_t Draw(const Row& row, const SampleRequest& request, float largest,
                        SelectShared& shared) {
  Weighing weighing = {.largest = largest, .divisor = fminf(request.temperature, FLT_MAX)};
  const bool top_k = request.top_k > 0 && request.top_k < row.n, top_p = request.top_p < 1.0f;
  if (top_k) weighing.least_key = KthKey(row, request.top_k, shared);
  if (top_p) {
    const uint64_t total = TotalWeight(row, weighing, shared);
    auto nucleus = static_cast<uint64_t>(ceil(request.top_p * static_cast<double>(total)));
    nucleus = nucleus < 1 ? 1 : nucleus > total ? total : nucleus;
    weighing.least_key = Find(row, weighing, nucleus - 1, shared);
  }
  weighing.least_weight = request.min_p;
  weighing.by_index = !top_k && !top_p;
  const uint64_t total = TotalWeight(row, weighing, shared);
  const auto target = static_cast<uint64_t>(Uniform(request) * static_cast<double>(total));
  return IndexOf(Find(row, weighing, target < total ? target : total - 1, shared));
}

// The key of the largest element; 0 when the row is not finite: a NaN, a +inf or nothing but -inf.
__device__ uint64_t LargestIfFinite(const Row& row, SelectShared& shared) {
  uint64_t largest = 0, wrong = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = KeyOf(row.x[i], i);
    largest = key > largest ? key : largest;
    if (row.x[i] != row.x[i] || row.x[i] == INFINITY) wrong = 1;
  }
  largest = BlockReduce(largest, Max(), shared.reduce);
  wrong = BlockReduce(wrong, Max(), shared.reduce);
  return wrong != 0 || row.x[IndexOf(largest)] == -INFINITY ? 0 : largest;
}

__device__ double LogSumExp(const Row& row, float largest, double (&scratch)[kWarp]) {
  double sum = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) sum += expf(row.x[i] - largest);
  return largest + log(BlockReduce(sum, Plus(), scratch));
}

__device__ void SampleRow(const SampleArgs& args, int32_t r, SampleShared& shared) {
  const Row row = {args.logits + static_cast<int64_t>(r) * args.n, args.n};
  const SampleRequest request = args.requests[r];
  const uint64_t largest_key = LargestIfFinite(row, shared.select);
  if (largest_key == 0) {
    if (ThreadIndex() == 0) args.outcomes[r] = {-1, NAN};
    return;
  }
  const float largest = row.x[IndexOf(largest_key)];
  const double log_sum = LogSumExp(row, largest, shared.sums);
  int32_t token = request.target;
  if (token < 0) {
    token =
        request.temperature > 0 ? Draw(row, request, largest, shared.select) : IndexOf(largest_key);
  }
  if (ThreadIndex() == 0) {
    args.outcomes[r] = {token, static_cast<float>(row.x[token] - log_sum)};
  }
  if (request.num_top > 0) {
    const int64_t place = static_cast<int64_t>(r) * args.max_top;
    ForLargest(row, request.num_top, args.scratch + place, shared.select,
               [&](int32_t rank, int32_t index) {
                 args.top_ids[place + rank] = index;
                 args.top_logprobs[place + rank] = static_cast<float>(row.x[index] - log_sum);
               });
  }
}

__global__ void __launch_bounds__(kSelectThreads) SampleKernel(SampleArgs args) {
  auto& shared = SharedMemory<SampleShared>();
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) SampleRow(args, r, shared);
}

const Kernel kSample = KernelOf("Sample", &SampleKernel);

}  // namespace

void Sample(Stream& stream, const SampleArgs& args) {
  SLUICE_CHECK(args.n >= 1 && args.n <= kMaxLogits && args.max_top >= 0);
  Launch(stream, kSample,
         {PersistentBlocks(stream, args.rows.capacity, 4), kSelectThreads, sizeof(SampleShared)},
         args);
}

}  // namespace sluice::kernels::cuda
