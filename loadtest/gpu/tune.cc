#include "loadtest/gpu/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_layers.h"
#include "engine/cuda/dense_shapes.h"
#include "engine/model/model.h"

namespace sluice::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostCandidates = 16;
constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 50;
constexpr int kRunsInARow = 8;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One candidate with one number of rows, captured.
struct Case {
  std::unique_ptr<DeviceGraph> graph;
  std::vector<double> seconds;

  double Median() {
    const auto middle = seconds.begin() + (seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  }
};

// The arrays of one shape, with space for the largest number of rows.
struct Arrays {
  DenseArgs args;

  Arrays(Bench& bench, const DenseShape& shape, int64_t rows) : args{} {
    // In int8 the operands are random bits.
    const auto values = [&](int64_t n) -> void* {
      if (shape.type == DenseType::kF32) return bench.Values<float>(n);
      return bench.Values<kernels::cuda::BFloat16>(n);
    };
    args.x = values(rows * shape.k);
    args.weight = values(int64_t{shape.k} * shape.n);
    args.bias = shape.bias ? values(shape.n) : nullptr;
    args.out = bench.Room<float>(rows * shape.n);
  }
};

std::vector<int32_t> RowCounts(const DenseShape& shape, Scale scale) {
  if (shape.head) return {kMaxHeadRows};
  if (scale == Scale::kRehearsal) return {MinRows(shape), 64};
  if (shape.int8()) return {kMinInt8Rows, 64, 256, MaxRows(shape)};
  return {16, 64, 256, 1024, kMaxDenseRows};
}

std::unique_ptr<DeviceGraph> Capture(Bench& bench, const DenseLayer& layer, const DenseArgs& args) {
  bench.stream().BeginCapture();
  layer.Run(args, bench.stream());
  return ValueOrDie(bench.stream().EndCapture());
}

// Times the cases in turn, so that other work on the device affects all of them.
void TimeInTurn(Bench& bench, std::vector<Case>& cases, double seconds) {
  const auto start = Clock::now();
  for (int round = 0; round < kMostRounds; ++round) {
    if (round >= kLeastRounds && SecondsSince(start) > seconds) break;
    for (Case& timed : cases) {
      const auto begun = Clock::now();
      for (int i = 0; i < kRunsInARow; ++i) bench.stream().Run(*timed.graph);
      OrDie(bench.stream().Synchronize());
      timed.seconds.push_back(SecondsSince(begun));
    }
  }
}

// Returns the mean of the logarithms of the seconds of each candidate's cases. The cases of a
// candidate are adjacent.
std::vector<double> Scores(std::vector<Case>& cases, size_t each) {
  std::vector<double> scores;
  for (size_t first = 0; first < cases.size(); first += each) {
    double sum = 0;
    for (size_t i = first; i < first + each; ++i) sum += std::log(cases[i].Median());
    scores.push_back(sum / static_cast<double>(each));
  }
  return scores;
}

// Adds the best algorithm for the shape to the table. Returns false if none passes.
bool TuneShape(Bench& bench, Scale scale, const DenseShape& shape, double seconds,
               AlgorithmTable* table) {
  const auto rows = RowCounts(shape, scale);
  Arrays arrays(bench, shape, rows.back());
  DenseLayers layers(bench.device(), bench.stream());
  const auto passing =
      ValueOrDie(layers.Passing(shape, arrays.args.weight, arrays.args.bias, kMostCandidates));
  if (passing.empty()) return false;
  size_t workspace = 1;
  for (const auto& layer : passing) workspace = std::max(workspace, layer->workspace_bytes());
  arrays.args.workspace = bench.Room<char>(workspace);
  std::vector<Case> cases;
  for (const auto& layer : passing) {
    for (const int32_t count : rows) {
      arrays.args.rows = count;
      cases.push_back({Capture(bench, *layer, arrays.args), {}});
    }
  }
  TimeInTurn(bench, cases, seconds);
  const std::vector<double> scores = Scores(cases, rows.size());
  const auto best = std::min_element(scores.begin(), scores.end());
  const DenseLayer& layer = *passing[best - scores.begin()];
  OrDie(table->Add(shape, layer.algorithm(),
                   absl::StrCat(layer.Describe(), "; of ", passing.size(), ", ",
                                std::round(1000 * std::exp(*best - scores.front())) / 1000,
                                " of the time of the library's first")));
  return true;
}

}  // namespace

absl::StatusOr<DenseShape> ParseShape(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  DenseShape shape = {.k = 0, .n = 0, .type = DenseType::kBF16, .bias = false, .accumulate = false};
  bool good = parts.size() >= 2 && absl::SimpleAtoi(parts[0], &shape.k) &&
              absl::SimpleAtoi(parts[1], &shape.n) && shape.k >= 1 && shape.n >= 1;
  for (size_t i = 2; i < parts.size(); ++i) {
    const std::string& flag = parts[i];
    if (flag == "bias") {
      shape.bias = true;
    } else if (flag == "accumulate") {
      shape.accumulate = true;
    } else if (flag == "head") {
      shape.head = true;
    } else if (flag == "relu") {
      shape.activation = DenseActivation::kRelu;
    } else if (flag == "gelu_tanh") {
      shape.activation = DenseActivation::kGeluTanh;
    } else if (flag == "f32") {
      shape.type = DenseType::kF32;
    } else if (flag == "int8") {
      shape.type = DenseType::kInt8;
    } else {
      good = false;
    }
  }
  if (good) return shape;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not K,N[,bias][,accumulate][,head][,relu|,gelu_tanh][,f32|,int8]"));
}

absl::StatusOr<std::vector<DenseShape>> ShapesToTune(Scale scale, const std::string& folder,
                                                     const std::vector<DenseShape>& more) {
  std::set<DenseShape> shapes(more.begin(), more.end());
  const auto add = [&shapes](const Graph& graph, const ModelConfig& config) {
    shapes.merge(DenseShapesOf(graph, config.vocab_size, DenseType::kBF16));
  };
  const ModelConfig config = BenchModel(scale);
  add(BuildGraph(config), config);
  if (!folder.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto model, LoadModel("model", 1, folder));
    add(model->graph, model->config);
  }
  return std::vector<DenseShape>(shapes.begin(), shapes.end());
}

absl::StatusOr<AlgorithmTable> Tune(Bench& bench, Scale scale,
                                    const std::vector<DenseShape>& shapes, double seconds) {
  SLUICE_ASSIGN_OR_RETURN(std::string library, bench.device().DenseLibrary());
  AlgorithmTable table(bench.device().info().name, std::move(library));
  const auto start = Clock::now();
  for (size_t i = 0; i < shapes.size(); ++i) {
    const double left = seconds - SecondsSince(start);
    if (left < 0) {
      bench.Missing(ToString(shapes[i]) + ": no time");
      continue;
    }
    const double share = left / static_cast<double>(shapes.size() - i);
    if (TuneShape(bench, scale, shapes[i], share, &table)) {
      bench.Release();
    } else {
      bench.Missing(ToString(shapes[i]) + ": no algorithm passes");
    }
  }
  return table;
}

}  // namespace sluice::gpu
