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

// A copy of the row may follow it in shared memory.
struct SampleShared {
  SelectShared select;
  double sums[kWarp];

  __device__ float* near() { return reinterpret_cast<float*>(this + 1); }
};

__device__ double Uniform(const SampleParams& params) {
  const PhiloxWords words =
      Philox(params.seed, {{static_cast<uint32_t>(params.token_index),
                            static_cast<uint32_t>(params.token_index >> 32), params.sample, 0}});
  const uint64_t bits = static_cast<uint64_t>(words.word[0]) << 32 | words.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

__device__ inline float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Sets the centre and the distance of the elements that typical_p keeps: elements whose logarithm
// of the weight is within the distance of the mean. Finds the least distance by bisection over the
// bits as integers, which order floats that are not negative.
template <typename Elements>
__device__ void SetTypical(const Elements& row, float typical_p, Weighing* weighing,
                           SampleShared& shared) {
  constexpr uint32_t kLargest = 0x7F7FFFFFu;  // bits of FLT_MAX
  const uint64_t total = TotalWeight(row, *weighing, shared.select);
  double mean = 0;
  row.ForEach([&](uint64_t key) {
    const uint64_t weight = weighing->WeightOf(key);
    if (weight != 0) mean += static_cast<double>(weight) * weighing->LogWeight(key);
  });
  mean = BlockReduce(mean, Plus(), shared.sums) / static_cast<double>(total);
  weighing->centre = static_cast<float>(mean);
  const double enough = typical_p * static_cast<double>(total);
  uint32_t low = 0, high = kLargest;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    weighing->most_distance = FloatOf(middle);
    if (static_cast<double>(TotalWeight(row, *weighing, shared.select)) >= enough) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  weighing->most_distance = FloatOf(high);
}

// Returns the number of units of weight, of `total`, that top_p keeps.
__device__ uint64_t NucleusOf(float top_p, uint64_t total) {
  const auto nucleus = static_cast<uint64_t>(ceil(top_p * static_cast<double>(total)));
  return nucleus < 1 ? 1 : nucleus > total ? total : nucleus;
}

// Returns the least key of the elements of `kept` that top_p keeps.
template <typename Elements>
__device__ uint64_t LeastOfNucleus(const Elements& kept, const Weighing& weighing, float top_p,
                                   SelectShared& shared) {
  const uint64_t nucleus = NucleusOf(top_p, TotalWeight(kept, weighing, shared));
  if constexpr (!Elements::kNear) {
    // The nucleus is usually among the elements that fit in shared memory, which are faster to
    // search than a row in global memory.
    const auto few = Largest(kept, kept.n < kMaxInShared ? kept.n : kMaxInShared, nullptr, shared);
    if (TotalWeight(few, weighing, shared) >= nucleus) {
      return FindDescending(few, weighing, nucleus - 1, shared);
    }
  }
  return FindDescending(kept, weighing, nucleus - 1, shared);
}

// The place of a draw among weights with this total.
__device__ uint64_t TargetOf(const SampleParams& params, uint64_t total) {
  const auto target = static_cast<uint64_t>(Uniform(params) * static_cast<double>(total));
  return target < total ? target : total - 1;
}

// Draws by descending key from the elements that top_k keeps.
template <typename Elements>
__device__ uint64_t DrawDescending(const Elements& kept, Weighing weighing,
                                   const SampleParams& params, SampleShared& shared) {
  if (params.top_p < 1.0f) {
    weighing.least_key = LeastOfNucleus(kept, weighing, params.top_p, shared.select);
  }
  weighing.least_weight = params.min_p;
  if (params.typical_p < 1.0f) SetTypical(kept, params.typical_p, &weighing, shared);
  const uint64_t target = TargetOf(params, TotalWeight(kept, weighing, shared.select));
  return FindDescending(kept, weighing, target, shared.select);
}

// Draws from `row`, which has the tokens that may be drawn. `columns` is the size of the whole row;
// it decides whether top_k is on.
template <typename Elements>
__device__ int32_t Draw(const Elements& row, int32_t columns, const SampleParams& params,
                        float largest, SampleShared& shared) {
  Weighing weighing = {.largest = largest, .divisor = fminf(params.temperature, FLT_MAX)};
  const bool top_k = params.top_k > 0 && params.top_k < columns;
  if (!top_k && params.top_p >= 1.0f && params.typical_p >= 1.0f) {
    weighing.least_weight = params.min_p;
    return IndexOf(FindInOrder(row, weighing, shared.select,
                               [&](uint64_t total) { return TargetOf(params, total); }));
  }
  const int32_t most = top_k && params.top_k < row.n ? params.top_k : row.n;
  // Few elements are sorted, which serves all later searches.
  const int32_t few = Elements::kNear && !top_k ? 0 : kMaxInShared;
  if (most <= few) {
    const auto kept = Largest(row, most, nullptr, shared.select);
    return IndexOf(DrawDescending(kept, weighing, params, shared));
  }
  if (top_k) weighing.least_key = KthKey(row, most, shared.select);
  return IndexOf(DrawDescending(row, weighing, params, shared));
}

// Returns the key of the largest element, or 0 if the row is not finite: it holds a NaN or a +inf,
// or only -inf.
template <typename Elements>
__device__ uint64_t LargestIfFinite(const Elements& row, SelectShared& shared) {
  constexpr uint32_t kInfinite = 0xFF800000u;  // OrderableOf(INFINITY)
  uint64_t largest = 0, elements = 0;          // without NaNs
  row.ForEach([&](uint64_t key) {
    largest = key > largest ? key : largest;
    elements += key >> 32 != 0;
  });
  largest = ReduceIntegers<Elements::kThreads>(largest, Max(), shared.reduce);
  elements = ReduceIntegers<Elements::kThreads>(elements, Plus(), shared.reduce);
  const bool finite = elements == static_cast<uint64_t>(row.n) && largest >> 32 < kInfinite;
  return finite && ValueOf(largest) > -INFINITY ? largest : 0;
}

template <typename Elements>
__device__ double LogSumExp(const Elements& row, float largest, double (&scratch)[kWarp]) {
  double sum = 0;
  row.ForEach([&](uint64_t key) { sum += expf(ValueOf(key) - largest); });
  return largest + log(BlockReduce(sum, Plus(), scratch));
}

// The elements to draw a row's token from.
struct Choices {
  const float* x;
  int32_t n;
  const int32_t* ids = nullptr;  // of the elements; nullptr means their indices
};

__device__ inline float Penalised(const DrawEdits& edits, int32_t generated, float x) {
  const float y = x > 0 ? x / edits.repetition : x * edits.repetition;
  if (generated == 0) return y;
  return y - edits.presence - static_cast<float>(generated) * edits.frequency;
}

// Edits x[0, n), except for `allowed`. Returns false if a logit overflows upwards.
template <int32_t kThreads>
__device__ bool ApplyEdits(const DrawEdits& edits, float* x, SelectShared& shared) {
  uint64_t wrong = 0;  // also set for a NaN, as from -inf + inf
  for (int32_t i = ThreadIndex(); i < edits.seen_count; i += kThreads) {
    const SeenToken seen = edits.seen[i];
    const float edited = Penalised(edits, seen.generated, x[seen.token]);
    x[seen.token] = edited;
    if (!(edited < INFINITY)) wrong = 1;
  }
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < edits.bias_count; i += kThreads) {
    const TokenBias bias = edits.bias[i];
    const float edited = x[bias.token] + bias.bias;
    x[bias.token] = edited;
    if (!(edited < INFINITY)) wrong = 1;
  }
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < edits.banned_count; i += kThreads) {
    x[edits.banned[i]] = -INFINITY;
  }
  return ReduceIntegers<kThreads>(wrong, Max(), shared.reduce) == 0;
}

// Returns the choices after the edits; they are in scratch [n]. Returns no choices if a logit
// overflows upwards.
template <int32_t kThreads>
__device__ Choices Edit(const float* x, int32_t n, const DrawEdits& edits, uint64_t* scratch,
                        SelectShared& shared) {
  float* const edited = reinterpret_cast<float*>(scratch);  // [n]
  float* const gathered = edited + n;  // [n], the allowed logits in the order of `allowed`
  for (int32_t i = ThreadIndex(); i < n; i += kThreads) edited[i] = x[i];
  SyncBlock();
  if (!ApplyEdits<kThreads>(edits, edited, shared)) return {edited, 0};
  if (edits.allowed_count == 0) return {edited, n};
  for (int32_t i = ThreadIndex(); i < edits.allowed_count; i += kThreads) {
    gathered[i] = edited[edits.allowed[i]];
  }
  SyncBlock();
  return {gathered, edits.allowed_count, edits.allowed};
}

// Returns the index of the chosen element, of which `largest_key` is the largest. The row has some
// or all of the `columns`.
template <typename Elements>
__device__ int32_t Choose(const Elements& row, uint64_t largest_key, int32_t columns,
                          const SampleParams& params, SampleShared& shared) {
  if (params.temperature <= 0) return IndexOf(largest_key);
  return Draw(row, columns, params, ValueOf(largest_key), shared);
}

// Returns the token chosen from the edited row, or -1 if there is none.
template <typename Elements>
__device__ int32_t ChooseEdited(const float* x, int32_t n, const SampleRequest& request,
                                uint64_t* scratch, SampleShared& shared) {
  const Choices choices = Edit<Elements::kThreads>(x, n, *request.edits, scratch, shared.select);
  if (choices.n == 0) return -1;
  const Elements row(choices.x, choices.n, shared.near());
  const uint64_t largest_key = LargestIfFinite(row, shared.select);
  if (largest_key == 0) return -1;
  const int32_t chosen = Choose(row, largest_key, n, request.params, shared);
  return choices.ids == nullptr ? chosen : choices.ids[chosen];
}

__device__ void WriteOutcome(const SampleArgs& args, int32_t r, const SampleOutcome& outcome) {
  SampleOutcome& to = args.outcomes[(args.first == nullptr ? 0 : *args.first) + r];
  to.token = outcome.token;
  to.logprob = outcome.logprob;
}

template <typename Elements>
__device__ void SampleRow(const SampleArgs& args, int32_t r, SampleShared& shared) {
  const int64_t first = static_cast<int64_t>(r) * args.n;
  const float* const x = args.logits + r * args.stride;
  const SampleRequest request = args.requests[r];
  const Elements row(x, args.n, shared.near());
  const uint64_t largest_key = LargestIfFinite(row, shared.select);
  if (largest_key == 0) {
    if (ThreadIndex() == 0) WriteOutcome(args, r, {-1, NAN});
    return;
  }
  const double log_sum = LogSumExp(row, ValueOf(largest_key), shared.sums);
  const int64_t place = static_cast<int64_t>(r) * args.max_top;
  if (request.num_top > 0) {
    const auto few = Largest(row, request.num_top, args.scratch + first, shared.select);
    for (int32_t i = ThreadIndex(); i < few.n; i += Elements::kThreads) {
      const int32_t index = IndexOf(few.keys[i]);
      args.top_ids[place + i] = index;
      args.top_logprobs[place + i] = static_cast<float>(x[index] - log_sum);
      args.top_scores[place + i] = x[index];
    }
    SyncBlock();
  }
  int32_t token = request.target;
  if (token < 0) {
    token = request.edits != nullptr
                ? ChooseEdited<Elements>(x, args.n, request, args.scratch + first, shared)
                : Choose(row, largest_key, args.n, request.params, shared);
  }
  if (ThreadIndex() == 0) {
    WriteOutcome(args, r, {token, token < 0 ? NAN : static_cast<float>(x[token] - log_sum)});
  }
}

template <typename Elements>
__global__ void __launch_bounds__(Elements::kThreads) SampleKernel(SampleArgs args) {
  auto& shared = SharedMemory<SampleShared>();
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    SampleRow<Elements>(args, r, shared);
  }
}

// Short rows have few threads, so that a processor runs several blocks.
using ShortRow = NearRow<256>;
using WideRow = NearRow<512>;
using LongRow = MemoryRow<512>;
constexpr int32_t kMaxShort = 8192;
const Kernel kSampleShort = KernelOf("SampleShort", &SampleKernel<ShortRow>);
const Kernel kSampleWide = KernelOf("SampleWide", &SampleKernel<WideRow>);
const Kernel kSampleLong = KernelOf("SampleLong", &SampleKernel<LongRow>);

}  // namespace

void Sample(Stream& stream, const SampleArgs& args) {
  SLUICE_CHECK(args.n >= 1 && args.n <= kMaxLogits && args.max_top >= 0);
  constexpr auto kOwnBytes = static_cast<int32_t>(sizeof(SampleShared));
  const int32_t near = args.n * static_cast<int32_t>(sizeof(float));
  const auto launch = [&](const Kernel& kernel, int32_t threads, int32_t bytes,
                          int32_t per_processor) {
    Launch(stream, kernel,
           {PersistentBlocks(stream, args.rows.capacity, per_processor), threads, bytes}, args);
  };
  if (args.n <= kMaxShort) return launch(kSampleShort, ShortRow::kThreads, kOwnBytes + near, 4);
  if (kOwnBytes + near <= stream.shared_bytes_limit()) {
    return launch(kSampleWide, WideRow::kThreads, kOwnBytes + near, 1);
  }
  launch(kSampleLong, LongRow::kThreads, kOwnBytes, 4);
}

}  // namespace sluice::kernels::cuda
