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

// Returns the number of rows to time for a class: its largest, or in a rehearsal a small one.
int32_t RowsToTime(const DenseShape& shape, Scale scale, const RowClass& rows) {
  if (scale != Scale::kRehearsal) return rows.last;
  return rows.last == MaxRows(shape) ? MinRows(shape) : rows.first;
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

// Returns the index of the layer that is the fastest for a number of rows, and its time as a part
// of the first layer's. Times all of them in turn.
struct Fastest {
  size_t index;
  double of_first;
};
Fastest FindFastest(Bench& bench, const std::vector<std::unique_ptr<DenseLayer>>& layers,
                    const DenseArgs& args, double seconds) {
  std::vector<Case> cases;
  for (const auto& layer : layers) cases.push_back({Capture(bench, *layer, args), {}});
  TimeInTurn(bench, cases, seconds);
  std::vector<double> medians;
  for (Case& timed : cases) medians.push_back(timed.Median());
  const auto best = std::ranges::min_element(medians);
  return {static_cast<size_t>(best - medians.begin()), *best / medians.front()};
}

std::string Rounded(double part) { return absl::StrCat(std::round(1000 * part) / 1000); }

// Adds the best family for the shape to the table: the fastest reference for the most rows, and for
// each other class the fastest algorithm with its bits, which may be the reference. Returns false
// if no reference passes.
bool TuneShape(Bench& bench, Scale scale, const DenseShape& shape, double seconds,
               AlgorithmTable* table) {
  const std::vector<RowClass> classes = ClassesOf(shape);
  Arrays arrays(bench, shape, MaxRows(shape));
  DenseLayers layers(bench.device(), bench.stream());
  auto passing =
      ValueOrDie(layers.Passing(shape, arrays.args.weight, arrays.args.bias, kMostCandidates));
  if (passing.empty()) return false;
  arrays.args.workspace = bench.Room<char>(kMaxWorkspaceBytes);
  const double each = seconds / static_cast<double>(classes.size());
  arrays.args.rows = RowsToTime(shape, scale, classes.back());
  const Fastest best = FindFastest(bench, passing, arrays.args, each);
  const DenseLayer& reference = *passing[best.index];
  DenseAlgorithms algorithms = {.reference = reference.algorithm()};
  std::string note = absl::StrCat(reference.Describe(), "; of ", passing.size(), ", ",
                                  Rounded(best.of_first), " of the time of the library's first");
  auto members = ValueOrDie(layers.Members(shape, arrays.args.weight, arrays.args.bias, reference));
  for (const RowClass& rows : classes) {
    std::vector<std::unique_ptr<DenseLayer>>& own = members[rows.last];
    if (own.empty()) continue;
    // The reference is timed with them, as the first.
    own.insert(own.begin(), std::move(passing[best.index]));
    arrays.args.rows = RowsToTime(shape, scale, rows);
    const Fastest faster = FindFastest(bench, own, arrays.args, each);
    algorithms.of_classes[rows.last] = own[faster.index]->algorithm();
    absl::StrAppend(&note, "; up to ", rows.last, ": ", Rounded(faster.of_first));
    passing[best.index] = std::move(own.front());
  }
  OrDie(table->Add(shape, algorithms, note));
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
