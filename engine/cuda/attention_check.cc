#include "engine/cuda/attention_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "kernels/reference/attention.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using cuda::BFloat16;
using cuda::Narrow;
using cuda::Widen;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// The context of the long sequence, which spans several segments of any kernel that cuts contexts.
constexpr int32_t kLongContext = 1100;
constexpr int32_t kPrompt = 37, kLongRows = 3, kContinued = 50, kContinuedRows = 5;

template <typename T>
std::vector<double> Wide(const std::vector<T>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const T value : values) wide.push_back(Widen(value));
  return wide;
}

}  // namespace

template <typename T>
void AttentionCheck<T>::AddSequence(int32_t length, int32_t queries) {
  std::mt19937_64 random(sequences_.size() + 1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto draw = [&](int64_t n) {
    std::vector<T> values(n);
    for (T& value : values) value = Narrow<T>(uniform(random));
    return values;
  };
  length = std::min(length, shape_.max_positions);
  // If all rows see the whole sequence, a step has all of it.
  queries = shape_.causal ? std::min(queries, length) : length;
  sequences_.push_back({.length = length,
                        .queries = queries,
                        .first_row = sequences_.empty()
                                         ? 0
                                         : sequences_.back().first_row + sequences_.back().queries,
                        .pages_offset = static_cast<int32_t>(pages_.size()),
                        .q = draw(queries * q_width()),
                        .k = draw(length * kv_width()),
                        .v = draw(length * kv_width())});
  const int32_t pages = (length + cuda::kPageTokens - 1) / cuda::kPageTokens;
  pages_.resize(pages_.size() + pages);
}

// Plants values that are not finite: in a value that only later rows of the prompt read, in a key
// of the continued sequence, and in a query of the long one.
template <typename T>
void AttentionCheck<T>::DrawSequences() {
  AddSequence(kPrompt, kPrompt);
  AddSequence(shape_.causal ? kLongContext : kPrompt + 1, kLongRows);
  AddSequence(kContinued, kContinuedRows);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(1));
  const int64_t last_head = kv_width() - shape_.head_dim;
  const auto plant = [](std::vector<T>& values, int64_t at) { values[at] = Narrow<T>(kNaN); };
  const Sequence &prompt = sequences_[0], &continued = sequences_[2];
  const int32_t late = std::max(0, continued.length - 3);
  plant(sequences_[0].v, prompt.length / 2 * kv_width() + shape_.head_dim / 2);
  plant(sequences_[1].q, 0);
  plant(sequences_[2].k, late * kv_width() + last_head);
}

template <typename T>
std::vector<typename AttentionCheck<T>::Pieces> AttentionCheck<T>::Batches() const {
  const auto whole = [this](int32_t s) { return SequenceRows{s, 0, sequences_[s].queries}; };
  std::vector<Pieces> batches = {{whole(0), whole(1), whole(2)},
                                 {whole(2), whole(1), whole(0)},
                                 {whole(0)},
                                 {whole(1)},
                                 {whole(2), whole(0)}};
  if (!shape_.causal) return batches;
  // Every row as a step of its own, and steps that group the rows differently.
  const auto row = [](int32_t s, int32_t r) { return SequenceRows{s, r, 1}; };
  Pieces& single = batches.emplace_back();
  for (int32_t s = 0; s < std::ssize(sequences_); ++s) {
    for (int32_t r = 0; r < sequences_[s].queries; ++r) single.push_back(row(s, r));
  }
  const int32_t prompt = sequences_[0].queries;
  batches.push_back({row(0, prompt - 1), row(1, sequences_[1].queries - 1), row(2, 0)});
  batches.push_back({row(1, 0), {0, 0, (prompt + 1) / 2}});
  if (prompt > 2) batches.push_back({{0, prompt / 2, prompt - prompt / 2}, row(2, 0)});
  return batches;
}

template <typename T>
std::vector<int32_t> AttentionCheck<T>::RowsOf(const Pieces& pieces) const {
  std::vector<int32_t> rows;
  for (const SequenceRows& piece : pieces) {
    for (int32_t i = 0; i < piece.count; ++i) {
      rows.push_back(sequences_[piece.sequence].first_row + piece.first + i);
    }
  }
  return rows;
}

// Positions after the end of a sequence are filled with values that are not finite.
template <typename T>
void AttentionCheck<T>::PutKv() {
  const int64_t size = std::ssize(pages_) * cuda::kPageTokens * kv_width();
  std::vector<T> k(size, Narrow<T>(kNaN)), v(size, Narrow<T>(kNaN));
  const cuda::KvLayer<T> layer = {k.data(), v.data(), shape_.kv_heads, shape_.head_dim};
  for (const Sequence& sequence : sequences_) {
    for (int32_t p = 0; p < sequence.length; ++p) {
      const int32_t page = pages_[sequence.pages_offset + p / cuda::kPageTokens];
      const int32_t slot = page * cuda::kPageTokens + p % cuda::kPageTokens;
      for (int32_t h = 0; h < shape_.kv_heads; ++h) {
        const int64_t from = p * kv_width() + int64_t{h} * shape_.head_dim;
        for (int32_t d = 0; d < shape_.head_dim; ++d) {
          *layer.Row(layer.k, slot, h).At(d) = sequence.k[from + d];
          *layer.Row(layer.v, slot, h).At(d) = sequence.v[from + d];
        }
      }
    }
  }
  k_ = inputs_->Put(k);
  v_ = inputs_->Put(v);
  pages_on_device_ = inputs_->Put(pages_);
}

template <typename T>
int32_t AttentionCheck<T>::LongestSequence() const {
  return std::ranges::max(sequences_, {}, &Sequence::length).length;
}

template <typename T>
typename AttentionCheck<T>::Batch AttentionCheck<T>::Put(
    const std::vector<T>& q, const std::vector<cuda::AttentionSequence>& steps) {
  const auto rows = static_cast<int32_t>(std::ssize(q) / q_width());
  std::vector<int32_t> ids(rows);
  std::iota(ids.begin(), ids.end(), 0);
  const cuda::AttentionSizes sizes = {.q_heads = shape_.q_heads,
                                      .kv_heads = shape_.kv_heads,
                                      .causal = shape_.causal,
                                      .max_context = LongestSequence(),
                                      .processors = processors_,
                                      .rows = rows,
                                      .sequences = std::ssize(steps)};
  std::vector<cuda::AttentionTile> tiles(cuda::MaxAttentionTiles(sizes));
  const auto counts = cuda::CutIntoAttentionTiles(steps, sizes, std::span(tiles));
  return {.q = inputs_->Put(q),
          .sequences = inputs_->Put(steps),
          .rows = inputs_->Put(ids),
          .tiles = {.tiles = inputs_->Put(tiles),
                    .counts = inputs_->Put(std::vector<cuda::AttentionTileCounts>{counts}),
                    .taken = const_cast<int32_t*>(inputs_->Put(std::vector<int32_t>{0})),
                    .capacity = static_cast<int32_t>(tiles.size()),
                    .records = static_cast<int32_t>(cuda::MaxAttentionRecords(sizes))},
          .scratch =
              inputs_->template Room<float>(cuda::AttentionScratchFloats(sizes, shape_.head_dim))};
}

template <typename T>
void AttentionCheck<T>::PutBatch(const Pieces& pieces) {
  std::vector<T> q;
  std::vector<cuda::AttentionSequence> steps;
  int32_t rows = 0;
  for (const SequenceRows& piece : pieces) {
    const Sequence& sequence = sequences_[piece.sequence];
    const auto from = sequence.q.begin() + piece.first * q_width();
    q.insert(q.end(), from, from + piece.count * q_width());
    steps.push_back(
        {sequence.first_position() + piece.first, piece.count, rows, sequence.pages_offset});
    rows += piece.count;
  }
  batches_.push_back(Put(q, steps));
}

// Few rows are steps of one row each, at the end of the longest sequence. Many rows are prompts.
template <typename T>
typename AttentionCheck<T>::Batch AttentionCheck<T>::PutTimed(int32_t rows) {
  constexpr int32_t kManyRows = 1024;
  const Sequence& sequence = *std::ranges::max_element(sequences_, {}, &Sequence::length);
  const bool prompts = rows >= kManyRows || !shape_.causal;
  std::vector<cuda::AttentionSequence> steps;
  int32_t taken = 0;
  while (taken < rows) {
    const int32_t most = shape_.causal ? std::min(sequence.length, rows - taken) : sequence.length;
    const int32_t count = prompts ? most : 1;
    steps.push_back({prompts ? 0 : sequence.length - 1, count, taken, sequence.pages_offset});
    taken += count;
  }
  std::vector<T> q;
  q.reserve(taken * q_width());
  for (int64_t i = 0; i < taken * q_width(); ++i) {
    q.push_back(sequence.q[i % std::ssize(sequence.q)]);
  }
  return Put(q, steps);
}

template <typename T>
void AttentionCheck<T>::Expect(const Sequence& sequence, const std::vector<double>& gate,
                               const std::vector<double>& bias, RowCheckSpec* spec) const {
  const std::vector<float> narrow_bias(bias.begin(), bias.end());
  const kernels::reference::AttentionShape heads = {.q_heads = shape_.q_heads,
                                                    .kv_heads = shape_.kv_heads,
                                                    .head_dim = shape_.head_dim,
                                                    .window = shape_.window,
                                                    .soft_cap = shape_.soft_cap,
                                                    .bias = narrow_bias,
                                                    .bias_positions = shape_.max_positions,
                                                    .silu_share = shape_.silu_share};
  const double dim = shape_.head_dim;
  const std::vector<double> v = Wide(sequence.v);
  const std::vector<double> y =
      kernels::reference::Attention(heads, Wide(sequence.q), Wide(sequence.k), v,
                                    sequence.first_position(), shape_.causal, shape_.ScoreScale());
  const std::span<const double> own = std::span(v).subspan(sequence.first_position() * kv_width());
  const auto z = kernels::reference::ExcludeSelf(heads, {shape_.xsa, shape_.eps, gate}, y, own).out;
  const double rounding = kHalf ? 0x1p-7 : 0x1p-20;
  const double error = 4 * (dim * std::sqrt(dim) + sequence.length) * 0x1p-24 + rounding;
  for (int32_t r = 0; r < sequence.queries; ++r) {
    RowCheckSpec::Expected& expected = spec->expected.emplace_back();
    expected.row = sequence.first_row + r;
    for (int32_t h = 0; h < shape_.q_heads; ++h) {
      const int32_t kv_head = h / (shape_.q_heads / shape_.kv_heads);
      const std::span<const double> value =
          own.subspan(r * kv_width() + int64_t{kv_head} * shape_.head_dim, shape_.head_dim);
      double square = 0, absolute = 0;
      for (const double x : value) {
        square += x * x;
        absolute += std::abs(x);
      }
      // An error of y changes y . v by up to |v|_1 times as much, and that v / |v|^2.
      const double carried =
          shape_.xsa == kernels::XsaForm::kOff
              ? 0
              : (gate.empty() ? 1 : std::abs(gate[h])) * absolute / std::max(square, 1e-12);
      for (int32_t d = 0; d < shape_.head_dim; ++d) {
        const double out = z[r * q_width() + int64_t{h} * shape_.head_dim + d];
        expected.values.push_back(out);
        expected.bounds.push_back(error * (1 + carried * std::abs(value[d])) +
                                  rounding * std::abs(out));
      }
    }
  }
}

template <typename T>
absl::StatusOr<std::vector<double>> AttentionCheck<T>::Fetch(const float* from, int64_t count) {
  std::vector<double> values;
  if (from == nullptr) return values;
  SLUICE_ASSIGN_OR_RETURN(const auto bytes, inputs_->Fetch(from, count * sizeof(float)));
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(ReadElement(bytes.data(), i, /*half=*/false));
  }
  return values;
}

template <typename T>
absl::Status AttentionCheck<T>::Prepare(Device& device, DeviceStream& stream) {
  inputs_.emplace(device, stream);
  processors_ = device.info().processors;
  DrawSequences();
  PutKv();
  RowCheckSpec spec = {.width = q_width(), .half = kHalf, .persistent = true};
  for (const Pieces& pieces : Batches()) {
    spec.batches.push_back(RowsOf(pieces));
    PutBatch(pieces);
  }
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  SLUICE_ASSIGN_OR_RETURN(const auto gate, Fetch(tensors_.gate, shape_.q_heads));
  SLUICE_ASSIGN_OR_RETURN(const auto bias, Fetch(tensors_.bias, bias_values()));
  for (const Sequence& sequence : sequences_) Expect(sequence, gate, bias, &spec);
  SLUICE_ASSIGN_OR_RETURN(check_, RowCheck::Make(std::move(spec), device));
  return absl::OkStatus();
}

template <typename T>
cuda::AttentionArgs<T> AttentionCheck<T>::ArgsOf(const Batch& inputs, T* out) const {
  return {.q = inputs.q,
          .sequences = inputs.sequences,
          .rows = inputs.rows,
          .pages = pages_on_device_,
          .tiles = inputs.tiles,
          .kv = {const_cast<T*>(k_), const_cast<T*>(v_), shape_.kv_heads, shape_.head_dim},
          .q_heads = shape_.q_heads,
          .scale = shape_.ScoreScale(),
          .causal = shape_.causal,
          .window = shape_.window,
          .soft_cap = shape_.soft_cap,
          .bias = tensors_.bias,
          .bias_positions = shape_.max_positions,
          .silu_share = shape_.silu_share,
          .xsa = {.form = shape_.xsa, .eps = shape_.eps, .gate = tensors_.gate},
          .scratch = inputs.scratch,
          .out = out};
}

template <typename T>
absl::Status AttentionCheck<T>::Check(const AttentionCandidate<T>& candidate,
                                      DeviceStream& stream) {
  return check_->Check(
      [&](const RowCheck::Place& place) {
        candidate.run(place.launches, ArgsOf(batches_[place.batch], static_cast<T*>(place.out)));
      },
      stream);
}

template <typename T>
absl::StatusOr<double> AttentionCheck<T>::SecondsOf(const AttentionCandidate<T>& candidate,
                                                    int32_t rows, Device& device,
                                                    DeviceStream& stream) {
  if (!timed_.contains(rows)) timed_[rows] = PutTimed(rows);
  const Batch& inputs = timed_[rows];
  T* const out = inputs_->template Room<T>((rows + LongestSequence()) * q_width());
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  stream.BeginCapture();
  candidate.run(stream, ArgsOf(inputs, out));
  SLUICE_ASSIGN_OR_RETURN(const auto graph, stream.EndCapture());
  return device.SecondsOf(*graph, stream);
}

template class AttentionCheck<float>;
template class AttentionCheck<BFloat16>;

}  // namespace sluice
