#include "engine/cuda/product_check.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "kernels/cuda/pack.h"
#include "kernels/reference/activation.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using cuda::BFloat16;
using cuda::Narrow;
using cuda::Widen;

// The first position has more rows than a tile, so that some tiles are full and one is partly full.
constexpr int32_t kRowsOfPositions[] = {cuda::kTileRows + 7, 18, 1};
constexpr int32_t kComparedOfEach = 4;
constexpr int32_t kMaxTimedRows = kTimedRows[std::size(kTimedRows) - 1];
// The rows of the first and of the second position with a value that is not finite, and their
// neighbours, are compared.
constexpr std::pair<int32_t, float> kBrokenRows[] = {
    {1, std::numeric_limits<float>::quiet_NaN()},
    {kRowsOfPositions[0] + 2, std::numeric_limits<float>::infinity()}};

// A value and the largest error that is allowed.
struct Bounded {
  double value, bound;
};

}  // namespace

template <typename T>
void ProductCheck<T>::DrawRows() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto draw = [&](int32_t width) {
    std::vector<T> values(width);
    for (T& value : values) value = Narrow<T>(uniform(random));
    return values;
  };
  const std::set<int32_t> positions = {0, shape_.matrices / 2, shape_.matrices - 1};
  const int32_t* count = kRowsOfPositions;
  for (const int32_t position : positions) {
    for (int32_t i = 0; i < *count; ++i) {
      rows_.push_back({.position = position,
                       .compared = i < kComparedOfEach || i + 1 == *count,
                       .x = draw(shape_.k),
                       .gate = draw(shape_.gated && !shape_.gate_layer ? shape_.n : 0)});
    }
    ++count;
  }
  for (const auto& [row, value] : kBrokenRows) {
    // An activation of an infinity may be finite or not, depending on the implementation.
    if (row < std::ssize(rows_) && (std::isnan(value) || !shape_.activate)) {
      rows_[row].x[shape_.k / 2] = Narrow<T>(value);
    }
  }
}

template <typename T>
RowCheckSpec ProductCheck<T>::Spec() const {
  RowCheckSpec spec = {.width = shape_.n,
                       .half = kHalf,
                       .initial_byte = shape_.accumulate ? RowCheckSpec::kKept : uint8_t{0xFF},
                       .persistent = true};
  const auto rows = static_cast<int32_t>(rows_.size());
  std::vector<int32_t>& all = spec.batches.emplace_back(rows);
  for (int32_t row = 0; row < rows; ++row) all[row] = row;
  // Each position's rows in reverse: other places, the same number.
  std::vector<int32_t> reversed(all.rbegin(), all.rend());
  std::stable_sort(reversed.begin(), reversed.end(),
                   [this](int32_t a, int32_t b) { return rows_[a].position < rows_[b].position; });
  spec.batches.push_back(std::move(reversed));
  // The last rows of the first position, in numbers around the blocks of matrix products, and some
  // with a row of the last position.
  const int32_t first = kRowsOfPositions[0];
  for (const int32_t count : {1, 7, 8, 9, 16, 17, 33, cuda::kTileRows, cuda::kTileRows + 1}) {
    std::vector<int32_t>& some = spec.batches.emplace_back();
    for (int32_t row = first - count; row < first; ++row) some.push_back(row);
    if (count % 2 == 1 && rows > first) some.push_back(rows - 1);
  }
  // The broken row and its neighbours only.
  spec.batches.push_back({0, 1, 2});
  return spec;
}

template <typename T>
absl::Status ProductCheck<T>::Expect(RowCheckSpec* spec) {
  const int64_t k = shape_.k, n = shape_.n;
  std::map<int32_t, std::vector<int32_t>> compared;  // rows by position
  for (int32_t row = 0; row < std::ssize(rows_); ++row) {
    if (rows_[row].compared) compared[rows_[row].position].push_back(row);
  }
  const double kept = shape_.accumulate ? spec->kept() : 0;
  const double rounding = kHalf ? 0x1p-7 : 0x1p-16;
  for (const auto& [position, rows] : compared) {
    std::vector<std::vector<double>> x;
    for (const int32_t row : rows) {
      std::vector<double>& wide = x.emplace_back();
      for (const T value : rows_[row].x) wide.push_back(Widen(value));
    }
    SLUICE_ASSIGN_OR_RETURN(const ExactProducts products,
                            MultiplyExactly(*inputs_, x, weight_ + position * k * n,
                                            BiasAt(bias_, position), n, kHalf, kept));
    ExactProducts gates;
    if (shape_.gate_layer) {
      SLUICE_ASSIGN_OR_RETURN(gates, MultiplyExactly(*inputs_, x, gate_.weight + position * k * n,
                                                     BiasAt(gate_.bias, position), n, kHalf, 0));
    }
    const auto bounded = [&](const ExactProducts& of, size_t r, int64_t c) {
      const double sum = of.sums[r][c];
      return Bounded{sum,
                     static_cast<double>(k) * 0x1p-24 * of.absolute[c] + rounding * std::abs(sum)};
    };
    const auto activated = [&](const Bounded& in) {
      const auto f = [&](double y) { return kernels::reference::Activate(shape_.activation, y); };
      const double value = f(in.value);
      return Bounded{value, std::max(std::abs(f(in.value + in.bound) - value),
                                     std::abs(f(in.value - in.bound) - value)) +
                                in.bound / 4 + rounding * std::abs(value)};
    };
    for (size_t r = 0; r < rows.size(); ++r) {
      RowCheckSpec::Expected& expected = spec->expected.emplace_back();
      expected.row = rows[r];
      for (int64_t c = 0; c < n; ++c) {
        Bounded out = bounded(products, r, c);
        if (shape_.gated) {
          Bounded factor = {0, 0};
          if (shape_.gate_layer) {
            factor = activated(bounded(gates, r, c));
          } else {
            factor.value =
                kernels::reference::Activate(shape_.activation, Widen(rows_[rows[r]].gate[c]));
          }
          const double value = factor.value * out.value;
          out = {value, std::abs(factor.value) * out.bound +
                            factor.bound * (std::abs(out.value) + out.bound) +
                            rounding * std::abs(value)};
        } else if (shape_.activate) {
          out = activated(out);
        }
        expected.values.push_back(out.value);
        expected.bounds.push_back(out.bound);
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ProductCheck<T>::PutBatch(const std::vector<int32_t>& rows) {
  std::vector<int32_t> positions;
  positions.reserve(rows.size());
  for (const int32_t row : rows) positions.push_back(rows_[row].position);
  SLUICE_ASSIGN_OR_RETURN(
      Batch batch, Put(positions, [&](int32_t place) -> const Row& { return rows_[rows[place]]; }));
  // Every second batch uses a bucket of many more rows, for which a candidate may launch another
  // kernel.
  if (batches_.size() % 2 == 1) {
    batch.tiles.capacity = std::max(batch.tiles.capacity, 2 * processors_);
  }
  batches_.push_back(batch);
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<typename ProductCheck<T>::Batch> ProductCheck<T>::Put(
    const std::vector<int32_t>& positions, absl::FunctionRef<const Row&(int32_t)> row_at) {
  std::vector<T> x, gate;
  std::vector<kernels::RowGroup> groups;
  for (int32_t place = 0; place < std::ssize(positions); ++place) {
    const Row& row = row_at(place);
    x.insert(x.end(), row.x.begin(), row.x.end());
    gate.insert(gate.end(), row.gate.begin(), row.gate.end());
    if (groups.empty() || groups.back().matrix != positions[place]) {
      groups.push_back({positions[place], place, 0});
    }
    ++groups.back().count;
  }
  std::vector<kernels::RowGroup> tiles(
      cuda::MaxRowTiles(std::ssize(positions), std::ssize(groups)));
  const int32_t count = cuda::CutIntoRowTiles(groups, tiles.data());
  const Batch batch = {
      .x = inputs_->Put(x),
      .gate = inputs_->Put(gate),
      .tiles = {inputs_->Put(tiles), inputs_->Put(std::vector<int32_t>{count}),
                static_cast<int32_t>(tiles.size()), /*one_group=*/shape_.matrices == 1}};
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  return batch;
}

template <typename T>
absl::StatusOr<const T*> ProductCheck<T>::Pack(const T* weight, cuda::WeightLayout layout,
                                               DeviceStream& stream) {
  if (layout == cuda::WeightLayout::kPlain || weight == nullptr) return weight;
  T* const out =
      inputs_->Room<T>(cuda::WeightElements<T>(layout, shape_.matrices, shape_.k, shape_.n));
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  cuda::PackAs<T>(
      stream, layout,
      {.in = weight, .matrices = shape_.matrices, .k = shape_.k, .n = shape_.n, .out = out});
  return out;
}

template <typename T>
absl::StatusOr<typename ProductCheck<T>::Weights> ProductCheck<T>::Packed(cuda::WeightLayout layout,
                                                                          DeviceStream& stream) {
  if (const auto found = packed_.find(layout); found != packed_.end()) return found->second;
  SLUICE_ASSIGN_OR_RETURN(const T* const weight, Pack(weight_, layout, stream));
  SLUICE_ASSIGN_OR_RETURN(const T* const gate, Pack(gate_.weight, layout, stream));
  return packed_[layout] = {weight, gate};
}

template <typename T>
absl::Status ProductCheck<T>::Prepare(Device& device, DeviceStream& stream) {
  inputs_.emplace(device, stream);
  processors_ = device.info().processors;
  DrawRows();
  RowCheckSpec spec = Spec();
  for (const std::vector<int32_t>& rows : spec.batches) SLUICE_RETURN_IF_ERROR(PutBatch(rows));
  SLUICE_RETURN_IF_ERROR(Expect(&spec));
  if (shape_.gate_layer) {
    const int64_t most = std::max<int64_t>(std::ssize(rows_), kMaxTimedRows);
    gate_out_ = inputs_->Room<T>(most * shape_.n);
    SLUICE_RETURN_IF_ERROR(inputs_->status());
  }
  SLUICE_ASSIGN_OR_RETURN(check_, RowCheck::Make(std::move(spec), device));
  return absl::OkStatus();
}

template <typename T>
absl::Status ProductCheck<T>::Check(const GroupedProductCandidate<T>& candidate,
                                    DeviceStream& stream) {
  SLUICE_ASSIGN_OR_RETURN(const Weights weights, Packed(candidate.layout, stream));
  return check_->Check(
      [&](const RowCheck::Place& place) {
        Run(candidate, place.launches, batches_[place.batch], weights, static_cast<T*>(place.out));
      },
      stream);
}

template <typename T>
void ProductCheck<T>::Run(const GroupedProductCandidate<T>& candidate, cuda::Stream& stream,
                          const Batch& batch, const Weights& weights, T* out) const {
  cuda::ProjectionArgs<T> args = {.x = batch.x,
                                  .weight = weights.weight,
                                  .bias = bias_,
                                  .bias_stride = shape_.position_bias ? shape_.n : 0,
                                  .k = shape_.k,
                                  .n = shape_.n,
                                  .tiles = batch.tiles,
                                  .accumulate = shape_.accumulate,
                                  .out = out,
                                  .activate = shape_.activate,
                                  .activation = shape_.activation,
                                  .gate = batch.gate};
  if (!shape_.gate_layer) return candidate.run(stream, args);
  args.gate = gate_out_;
  cuda::ProjectionArgs<T> gate = args;
  gate.weight = weights.gate;
  gate.bias = gate_.bias;
  gate.out = gate_out_;
  gate.activate = false;
  gate.gate = nullptr;
  candidate.RunBoth(stream, gate, args);
}

// The rows are distributed over the positions. Their values repeat the rows of the trial.
template <typename T>
absl::StatusOr<double> ProductCheck<T>::SecondsOf(const GroupedProductCandidate<T>& candidate,
                                                  int32_t rows, Device& device,
                                                  DeviceStream& stream) {
  SLUICE_ASSIGN_OR_RETURN(const Weights weights, Packed(candidate.layout, stream));
  Batch& batch = timed_[rows];
  if (batch.x == nullptr) {
    std::vector<int32_t> positions(rows);
    for (int32_t i = 0; i < rows; ++i) {
      positions[i] = static_cast<int32_t>(int64_t{i} * shape_.matrices / rows);
    }
    SLUICE_ASSIGN_OR_RETURN(
        batch, Put(positions, [this](int32_t i) -> const Row& { return rows_[i % rows_.size()]; }));
  }
  if (timed_out_ == nullptr) {
    timed_out_ = inputs_->Room<T>(int64_t{kMaxTimedRows} * shape_.n);
    SLUICE_RETURN_IF_ERROR(inputs_->status());
    stream.Fill(timed_out_, 0, kMaxTimedRows * shape_.n * sizeof(T));
  }
  stream.BeginCapture();
  Run(candidate, stream, batch, weights, timed_out_);
  SLUICE_ASSIGN_OR_RETURN(const auto graph, stream.EndCapture());
  return device.SecondsOf(*graph, stream);
}

template class ProductCheck<float>;
template class ProductCheck<BFloat16>;

}  // namespace sluice
