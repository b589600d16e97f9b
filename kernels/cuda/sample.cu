#include "kernels/cuda/sample.h"

#include <cfloat>
#include <cmath>

#include "base/check.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/select.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

struct SampleShared {
  SelectShared select;
  double sums[kWarp];
};

__device__ double Uniform(const SampleParams& params) {
  const PhiloxWords words =
      Philox(params.seed, {{static_cast<uint32_t>(params.token_index),
                            static_cast<uint32_t>(params.token_index >> 32), params.sample, 0}});
  const uint64_t bits = static_cast<uint64_t>(words.word[0]) << 32 | words.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// The elements that typical_p keeps: those whose logarithm of the weight is within `most` of
// `mean`.
struct Typical {
  float mean, most;
  __device__ bool Heavier(float log_weight) const { return log_weight - mean > most; }
  __device__ bool Keeps(float log_weight) const { return fabsf(log_weight - mean) <= most; }
};

// Adds up the weights of the elements for whose logarithm of the weight `counts` is true.
template <typename Counts>
__device__ uint64_t WeightWhere(const Row& row, const Weighing& weighing, SelectShared& shared,
                                Counts counts) {
  uint64_t sum = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const float log_weight = (row.x[i] - weighing.largest) / weighing.divisor;
    if (counts(log_weight)) sum += weighing.WeightOf(row.x[i], KeyOf(row.x[i], i));
  }
  return BlockReduce(sum, Plus(), shared.reduce);
}

__device__ inline float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The least distance is found by bisection: as integers, floats that are not negative keep their
// order.
__device__ Typical FindTypical(const Row& row, const Weighing& weighing, float typical_p,
                               SampleShared& shared) {
  constexpr uint32_t kLargest = 0x7F7FFFFFu;  // bits of FLT_MAX
  const uint64_t total = TotalWeight(row, weighing, shared.select);
  double mean = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t weight = weighing.WeightOf(row.x[i], KeyOf(row.x[i], i));
    if (weight == 0) continue;
    const float log_weight = (row.x[i] - weighing.largest) / weighing.divisor;
    mean += static_cast<double>(weight) * log_weight;
  }
  mean = BlockReduce(mean, Plus(), shared.sums) / static_cast<double>(total);
  const double enough = typical_p * static_cast<double>(total);
  uint32_t low = 0, high = kLargest;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const Typical within = {static_cast<float>(mean), FloatOf(middle)};
    const uint64_t weight =
        WeightWhere(row, weighing, shared.select, [&](float x) { return within.Keeps(x); });
    if (static_cast<double>(weight) >= enough) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {static_cast<float>(mean), FloatOf(high)};
}

// Draws from `row`, the tokens that may be drawn. `columns` is the size of the whole row, which
// decides whether top_k is on.
__device__ int32_t Draw(const Row& row, int32_t columns, const SampleParams& params, float largest,
                        SampleShared& sample_shared) {
  SelectShared& shared = sample_shared.select;
  Weighing weighing = {.largest = largest, .divisor = fminf(params.temperature, FLT_MAX)};
  const bool top_k = params.top_k > 0 && params.top_k < columns, top_p = params.top_p < 1.0f;
  if (top_k && params.top_k < row.n) weighing.least_key = KthKey(row, params.top_k, shared);
  if (top_p) {
    const uint64_t total = TotalWeight(row, weighing, shared);
    auto nucleus = static_cast<uint64_t>(ceil(params.top_p * static_cast<double>(total)));
    nucleus = nucleus < 1 ? 1 : nucleus > total ? total : nucleus;
    weighing.least_key = Find(row, weighing, nucleus - 1, shared);
  }
  weighing.least_weight = params.min_p;
  const bool typical_p = params.typical_p < 1.0f;
  weighing.by_index = !top_k && !top_p && !typical_p;
  uint64_t skipped = 0, total;
  if (typical_p) {
    const Typical typical = FindTypical(row, weighing, params.typical_p, sample_shared);
    skipped = WeightWhere(row, weighing, shared, [&](float x) { return typical.Heavier(x); });
    total = WeightWhere(row, weighing, shared, [&](float x) { return typical.Keeps(x); });
  } else {
    total = TotalWeight(row, weighing, shared);
  }
  const auto target = static_cast<uint64_t>(Uniform(params) * static_cast<double>(total));
  return IndexOf(Find(row, weighing, skipped + (target < total ? target : total - 1), shared));
}

// Returns the key of the largest element, or 0 if the row is not finite: it holds a NaN, a +inf or
// nothing but -inf.
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

// The elements that a row's token is drawn from.
struct Choices {
  Row row;
  uint64_t largest_key;          // 0 means that nothing can be drawn
  const int32_t* ids = nullptr;  // of the elements of `row`; nullptr means their indices
};

__device__ inline float Penalised(const DrawEdits& edits, int32_t generated, float x) {
  const float y = x > 0 ? x / edits.repetition : x * edits.repetition;
  if (generated == 0) return y;
  return y - edits.presence - static_cast<float>(generated) * edits.frequency;
}

// Edits x[0, n), except for `allowed`. Returns false if a logit overflows upwards.
__device__ bool ApplyEdits(const DrawEdits& edits, float* x, SelectShared& shared) {
  uint64_t wrong = 0;  // also set for a NaN, as from -inf + inf
  for (int32_t i = ThreadIndex(); i < edits.seen_count; i += kSelectThreads) {
    const SeenToken seen = edits.seen[i];
    const float edited = Penalised(edits, seen.generated, x[seen.token]);
    x[seen.token] = edited;
    if (!(edited < INFINITY)) wrong = 1;
  }
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < edits.bias_count; i += kSelectThreads) {
    const TokenBias bias = edits.bias[i];
    const float edited = x[bias.token] + bias.bias;
    x[bias.token] = edited;
    if (!(edited < INFINITY)) wrong = 1;
  }
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < edits.banned_count; i += kSelectThreads) {
    x[edits.banned[i]] = -INFINITY;
  }
  return BlockReduce(wrong, Max(), shared.reduce) == 0;
}

// Returns the choices after the edits; they point into scratch [n].
__device__ Choices Edit(const Row& row, const DrawEdits& edits, uint64_t* scratch,
                        SelectShared& shared) {
  float* const edited = reinterpret_cast<float*>(scratch);  // [n]
  float* const gathered = edited + row.n;  // [n], the allowed logits in the order of `allowed`
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) edited[i] = row.x[i];
  SyncBlock();
  Choices choices = {{edited, row.n}, 0};
  if (!ApplyEdits(edits, edited, shared)) return choices;
  if (edits.allowed_count > 0) {
    for (int32_t i = ThreadIndex(); i < edits.allowed_count; i += kSelectThreads) {
      gathered[i] = edited[edits.allowed[i]];
    }
    SyncBlock();
    choices = {{gathered, edits.allowed_count}, 0, edits.allowed};
  }
  choices.largest_key = LargestIfFinite(choices.row, shared);
  return choices;
}

// Returns the chosen token, or -1 if there is none. The choices are some or all of `columns`.
__device__ int32_t Choose(const Choices& choices, int32_t columns, const SampleParams& params,
                          SampleShared& shared) {
  if (choices.largest_key == 0) return -1;
  int32_t chosen = IndexOf(choices.largest_key);
  if (params.temperature > 0) {
    chosen = Draw(choices.row, columns, params, choices.row.x[chosen], shared);
  }
  return choices.ids == nullptr ? chosen : choices.ids[chosen];
}

__device__ void SampleRow(const SampleArgs& args, int32_t r, SampleShared& shared) {
  const int64_t first = static_cast<int64_t>(r) * args.n;
  const Row row = {args.logits + first, args.n};
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
    Choices choices = {row, largest_key};
    if (request.edits != nullptr) {
      choices = Edit(row, *request.edits, args.scratch + first, shared.select);
    }
    token = Choose(choices, row.n, request.params, shared);
  }
  if (ThreadIndex() == 0) {
    args.outcomes[r] = {token, token < 0 ? NAN : static_cast<float>(row.x[token] - log_sum)};
  }
  if (request.num_top > 0) {
    const int64_t place = static_cast<int64_t>(r) * args.max_top;
    ForLargest(row, request.num_top, args.scratch + first, shared.select,
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
