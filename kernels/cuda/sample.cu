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

__device__ inline float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Sets the centre and the distance of the elements that typical_p keeps: elements whose logarithm
// of the weight is within the distance of the mean. Finds the least distance by bisection over the
// bits as integers, which order floats that are not negative.
__device__ void SetTypical(const Row& row, float typical_p, Weighing* weighing,
                           SampleShared& shared) {
  constexpr uint32_t kLargest = 0x7F7FFFFFu;  // bits of FLT_MAX
  const uint64_t total = TotalWeight(row, *weighing, shared.select);
  double mean = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = row.Key(i), weight = weighing->WeightOf(key);
    if (weight != 0) mean += static_cast<double>(weight) * weighing->LogWeight(key);
  }
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

// Returns the elements that top_k and top_p keep. If they are few, they are in descending order.
// Otherwise returns the whole row, and weighing->least_key excludes the other elements.
__device__ Row Keep(const Row& row, bool top_k, const SampleParams& params, Weighing* weighing,
                    SelectShared& shared) {
  const bool top_p = params.top_p < 1.0f;
  const int32_t most = top_k && params.top_k < row.n ? params.top_k : row.n;
  Row kept = row;
  if (most <= kMaxInShared) {
    kept = Largest(row, most, nullptr, shared);
  } else if (top_k) {
    weighing->least_key = KthKey(row, most, shared);
  }
  if (!top_p) return kept;
  const uint64_t nucleus = NucleusOf(params.top_p, TotalWeight(kept, *weighing, shared));
  if (kept.keys == nullptr) {
    // The nucleus is usually among the elements that fit in shared memory.
    const Row few = Largest(row, kMaxInShared, nullptr, shared);
    if (TotalWeight(few, *weighing, shared) >= nucleus) kept = few;
  }
  weighing->least_key = FindDescending(kept, *weighing, nucleus - 1, shared);
  return kept;
}

// Draws from `row`, which has the tokens that may be drawn. `columns` is the size of the whole row;
// it decides whether top_k is on.
__device__ int32_t Draw(const Row& row, int32_t columns, const SampleParams& params, float largest,
                        SampleShared& shared) {
  Weighing weighing = {.largest = largest, .divisor = fminf(params.temperature, FLT_MAX)};
  const bool top_k = params.top_k > 0 && params.top_k < columns;
  const bool typical_p = params.typical_p < 1.0f;
  const bool by_index = !top_k && params.top_p >= 1.0f && !typical_p;
  const Row kept = by_index ? row : Keep(row, top_k, params, &weighing, shared.select);
  weighing.least_weight = params.min_p;
  if (typical_p) SetTypical(kept, params.typical_p, &weighing, shared);
  const auto target_of = [&params](uint64_t total) {
    const auto target = static_cast<uint64_t>(Uniform(params) * static_cast<double>(total));
    return target < total ? target : total - 1;
  };
  if (by_index || kept.keys != nullptr) {
    return IndexOf(FindInOrder(kept, weighing, shared.select, target_of));
  }
  const uint64_t target = target_of(TotalWeight(kept, weighing, shared.select));
  return IndexOf(FindDescending(kept, weighing, target, shared.select));
}

// Returns the key of the largest element, or 0 if the row is not finite: it holds a NaN or a +inf,
// or only -inf.
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

// The elements to draw a row's token from.
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

// Returns the chosen token, or -1 if there is none. The choices are some or all of the `columns`.
__device__ int32_t Choose(const Choices& choices, int32_t columns, const SampleParams& params,
                          SampleShared& shared) {
  if (choices.largest_key == 0) return -1;
  int32_t chosen = IndexOf(choices.largest_key);
  if (params.temperature > 0) {
    chosen = Draw(choices.row, columns, params, choices.row.x[chosen], shared);
  }
  return choices.ids == nullptr ? chosen : choices.ids[chosen];
}

__device__ void WriteOutcome(const SampleArgs& args, int32_t r, const SampleOutcome& outcome) {
  SampleOutcome& to = args.outcomes[(args.first == nullptr ? 0 : *args.first) + r];
  to.token = outcome.token;
  to.logprob = outcome.logprob;
}

__device__ void SampleRow(const SampleArgs& args, int32_t r, SampleShared& shared) {
  const int64_t first = static_cast<int64_t>(r) * args.n;
  const Row row = {args.logits + r * args.stride, args.n};
  const SampleRequest request = args.requests[r];
  const uint64_t largest_key = LargestIfFinite(row, shared.select);
  if (largest_key == 0) {
    if (ThreadIndex() == 0) WriteOutcome(args, r, {-1, NAN});
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
    WriteOutcome(args, r, {token, token < 0 ? NAN : static_cast<float>(row.x[token] - log_sum)});
  }
  if (request.num_top > 0) {
    const int64_t place = static_cast<int64_t>(r) * args.max_top;
    const Row largest_few = Largest(row, request.num_top, args.scratch + first, shared.select);
    for (int32_t i = ThreadIndex(); i < largest_few.n; i += kSelectThreads) {
      const int32_t index = IndexOf(largest_few.keys[i]);
      args.top_ids[place + i] = index;
      args.top_logprobs[place + i] = static_cast<float>(row.x[index] - log_sum);
      args.top_scores[place + i] = row.x[index];
    }
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
