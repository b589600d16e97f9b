#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadtest/gpu/cases.h"
#include "loadtest/gpu/steps.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::gpu {

ModelConfig BenchModel(Scale scale) {
  ModelConfig config = testing::TinyConfig(scale == Scale::kGpu ? 6 : 1);
  if (scale == Scale::kGpu) {
    config.hidden_size = 1024;
    config.intermediate_size = 2816;
    config.heads = 8;
    config.kv_heads = 2;
    config.head_dim = 128;
    config.vocab_size = 8192;
    config.max_positions = 2048;
  }
  config.xsa.layers.assign(config.layers, true);
  return config;
}

ModelConfig StepModel(Scale scale) {
  ModelConfig config = testing::TinyConfig(scale == Scale::kGpu ? 4 : 1);
  if (scale == Scale::kGpu) {
    config.hidden_size = 4096;
    config.intermediate_size = 14336;
    config.heads = 32;
    config.kv_heads = 8;
    config.head_dim = 128;
    config.vocab_size = 16032;
    config.max_positions = 32768;
  }
  return config;
}

namespace {

std::string Tokens(int32_t tokens) { return absl::StrCat("bucket of ", tokens, " tokens"); }

// Caches the last model that a case used, because loading takes longer than most cases.
class ModelCache {
 public:
  Steps& Get(Bench& bench, const ModelConfig& config, const std::string& dense,
             const Bucket& largest) {
    if (!steps_ || dense_ != dense) {
      steps_.reset();
      steps_.emplace(bench, config, dense, largest);
      dense_ = dense;
    }
    return *steps_;
  }

 private:
  std::string dense_;
  std::optional<Steps> steps_;
};

// The small model with its buckets, for the cases that time captures and replays.
struct Mechanics {
  explicit Mechanics(Scale scale) : gpu(scale == Scale::kGpu), config(BenchModel(scale)) {
    for (int32_t tokens : gpu ? std::vector{64, 256, 1024, 4096} : std::vector{8, 24}) {
      buckets.push_back({tokens, gpu ? 64 : 4});
    }
  }

  Steps& Loaded(Bench& bench) { return cache.Get(bench, config, "own", buckets.back()); }
  StepShape Fresh(int32_t tokens) const {
    return StepShape::Fresh(tokens, static_cast<int32_t>(config.max_positions));
  }
  const Bucket& bucket(bool largest) const { return largest ? buckets.back() : buckets.front(); }

  const bool gpu;
  const ModelConfig config;
  std::vector<Bucket> buckets;
  ModelCache cache;
};

Measurement OfTimes(const char* name, const std::string& shape, const Bench::Times& times) {
  return {.part = "plans",
          .name = name,
          .shape = shape,
          .value = times.median,
          .low = times.low,
          .high = times.high};
}

// Reports the time and memory of the buckets' captures, and the number of captures for 100 sizes.
void TimeCaptures(Bench& bench, Mechanics& mechanics) {
  Steps& steps = mechanics.Loaded(bench);
  const std::unique_ptr<Slot> slot = steps.MakeSlot();
  std::vector<std::unique_ptr<Plan>> plans;
  for (const Bucket& bucket : mechanics.buckets) {
    const int64_t free = bench.device().FreeMemory();
    const auto start = std::chrono::steady_clock::now();
    plans.push_back(ValueOrDie(steps.executable().Prepare(bucket)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    bench.Keep({.part = "plans",
                .name = "capture",
                .shape = Tokens(bucket.tokens),
                .value = took.count(),
                .unit = "ms"});
    bench.Keep({.part = "plans",
                .name = "memory of a capture",
                .shape = Tokens(bucket.tokens),
                .value = static_cast<double>(free - bench.device().FreeMemory()) / (1 << 20),
                .unit = "MiB"});
  }
  const int32_t most = plans.back()->bucket().tokens;
  const int64_t before = bench.device().captures();
  constexpr int32_t kSizes = 100;
  for (int32_t i = 1; i <= kSizes; ++i) {
    const int32_t tokens = std::max(1, most * i / kSizes);
    const auto plan = std::find_if(plans.begin(), plans.end(), [tokens](const auto& candidate) {
      return candidate->bucket().tokens >= tokens;
    });
    steps.Run(**plan, *slot, mechanics.Fresh(tokens));
  }
  bench.Keep({.part = "plans",
              .name = "captures over 100 sizes",
              .shape = absl::StrCat(plans.size(), " buckets"),
              .value = static_cast<double>(bench.device().captures() - before),
              .unit = "captures"});
}

void CompareWithEager(Bench& bench, Mechanics& mechanics, bool largest) {
  Steps& steps = mechanics.Loaded(bench);
  const std::unique_ptr<Slot> slot = steps.MakeSlot();
  const auto plan = ValueOrDie(steps.executable().Prepare(mechanics.bucket(largest)));
  // This slot is newer than the plan, so the plan has no graph for it.
  const std::unique_ptr<Slot> eager = steps.MakeSlot();
  const int32_t tokens = plan->bucket().tokens;
  const StepShape shape = mechanics.Fresh(tokens);
  const Bench::Times replay = steps.Time(*plan, *slot, shape);
  const Bench::Times launches = steps.Time(*plan, *eager, shape);
  bench.Keep(OfTimes("step, replay", Tokens(tokens), replay));
  bench.Keep(OfTimes("step, eager launches", Tokens(tokens), launches));
  bench.Keep({.part = "plans",
              .name = "step, eager launches / replay",
              .shape = Tokens(tokens),
              .value = launches.median / replay.median,
              .unit = "times"});
}

// Compares steps that run one after another with steps that are queued while the previous one runs.
void CompareWithOverlap(Bench& bench, Mechanics& mechanics, bool largest) {
  Steps& steps = mechanics.Loaded(bench);
  const std::unique_ptr<Slot> slot = steps.MakeSlot();
  const auto plan = ValueOrDie(steps.executable().Prepare(mechanics.bucket(largest)));
  const int32_t tokens = plan->bucket().tokens;
  const StepShape shape = mechanics.Fresh(tokens);
  const double alone = steps.Time(*plan, *slot, shape).median;
  const double overlapping = steps.TimeOverlapping(*plan, *slot, shape);
  bench.Keep({.part = "plans",
              .name = "step, next one sent meanwhile",
              .shape = Tokens(tokens),
              .value = overlapping});
  bench.Keep({.part = "plans",
              .name = "step, one after another / next one sent meanwhile",
              .shape = Tokens(tokens),
              .value = alone / overlapping,
              .unit = "times"});
}

// Compares a step that fills a part of its bucket with a step in a bucket of its own size.
void TimeFill(Bench& bench, Mechanics& mechanics) {
  Steps& steps = mechanics.Loaded(bench);
  const std::unique_ptr<Slot> slot = steps.MakeSlot();
  const auto plan = ValueOrDie(steps.executable().Prepare(mechanics.buckets.back()));
  const int32_t capacity = plan->bucket().tokens;
  for (int32_t percent : {6, 25, 50, 100}) {
    const int32_t tokens = std::max(1, capacity * percent / 100);
    const auto matched = ValueOrDie(steps.executable().Prepare({tokens, plan->bucket().sequences}));
    const StepShape step = mechanics.Fresh(tokens);
    const Bench::Times in_bucket = steps.Time(*plan, *slot, step);
    const Bench::Times alone = steps.Time(*matched, *slot, step);
    const std::string shape = absl::StrCat(percent, "% of ", capacity, " tokens");
    bench.Keep(OfTimes("step at fill", shape, in_bucket));
    bench.Keep({.part = "plans",
                .name = "step at fill / matched graph",
                .shape = shape,
                .value = in_bucket.median / alone.median,
                .unit = "times"});
  }
}

// Returns the number of nodes of a graph that captures the launch.
int64_t NodesOf(Bench& bench, const Launch& launch) {
  bench.stream().BeginCapture();
  launch();
  const int64_t nodes = ValueOrDie(bench.stream().EndCapture())->nodes();
  bench.Release();
  return nodes;
}

// Counts the nodes of XSA by itself, and the nodes that XSA adds to attention.
void CountNodesOfXsa(Bench& bench, Scale scale) {
  using kernels::XsaForm;
  const XsaShape shape =
      scale == Scale::kGpu ? XsaShape{8, 256, 8, 2, 64} : XsaShape{2, 70, 4, 2, 16};
  const auto keep = [&](const char* what, XsaForm form, int64_t nodes) {
    bench.Keep({.part = "plans",
                .name = absl::StrCat(what, form == XsaForm::kNorm ? ", norm" : ", squared",
                                     " form, kernels"),
                .shape = absl::StrCat(shape.q_heads, "/", shape.kv_heads, " heads of ",
                                      shape.head_dim, " bf16"),
                .value = static_cast<double>(nodes),
                .unit = "nodes"});
  };
  const int64_t attention = NodesOf(bench, AttentionWithXsa(bench, shape, XsaForm::kOff));
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    keep("XSA", form, NodesOf(bench, XsaByItself(bench, shape, form)));
    keep("XSA after attention", form,
         NodesOf(bench, AttentionWithXsa(bench, shape, form)) - attention);
  }
}

enum class Phase { kDecode, kPrefill, kScoring };

struct StepCase {
  const char* dense;
  Phase phase;
  int32_t sequences;
  int32_t context;  // positions of a sequence at the end of the step
  int32_t count;    // tokens of each sequence in the step
  float temperature = 0;
};

StepShape ShapeOf(const StepCase& c) {
  StepShape shape;
  shape.pieces.assign(c.sequences, {c.context - c.count, c.count});
  shape.rows =
      c.phase == Phase::kScoring ? StepShape::Rows::kAllScored : StepShape::Rows::kLastOfEach;
  shape.temperature = c.temperature;
  return shape;
}

// Bytes count weights, keys and values. Operations count products and attention.
Measurement MeasurementOf(const StepCase& c, const ModelConfig& m) {
  const char* const phase = c.phase == Phase::kDecode    ? "decode"
                            : c.phase == Phase::kPrefill ? "prefill"
                                                         : "scoring";
  const auto sequences = static_cast<double>(c.sequences), tokens = sequences * c.count;
  const auto q = static_cast<double>(m.heads * m.head_dim);
  const auto kv = static_cast<double>(m.kv_heads * m.head_dim);
  const auto hidden = static_cast<double>(m.hidden_size), layers = static_cast<double>(m.layers);
  const double layer = hidden * (2 * q + 2 * kv + 3 * static_cast<double>(m.intermediate_size));
  const double head = hidden * static_cast<double>(m.vocab_size);
  const double sampled = c.phase == Phase::kScoring ? tokens : sequences;
  const double pairs = sequences * c.count * (c.context - (c.count - 1) / 2.0);
  const double element = sizeof(kernels::cuda::BFloat16);
  return {.part = "steps",
          .name = absl::StrCat(phase, c.temperature > 0 ? ", temperature 1" : "", ", ", c.dense),
          .shape = absl::StrCat(c.sequences, " x ", c.count, " of ", c.context),
          .bytes = element * (layers * layer + head + layers * 2 * kv * sequences * c.context),
          .operations = 2 * layers * layer * tokens + 2 * head * sampled + 4 * q * layers * pairs,
          .tensor_cores = true};
}

void TimeStep(Bench& bench, const StepCase& c, const ModelConfig& config, const Bucket& largest,
              ModelCache& cache) {
  Measurement measurement = MeasurementOf(c, config);
  if (const auto library = bench.device().DenseLibrary();
      !library.ok() && std::string(c.dense) == "cublaslt") {
    bench.Missing(measurement.Id() + ": " + std::string(library.status().message()));
    return;
  }
  Steps& steps = cache.Get(bench, config, c.dense, largest);
  const StepShape shape = ShapeOf(c);
  const Bucket bucket = {shape.tokens(), c.sequences};
  auto slot = steps.executable().CreateSlot(bucket, shape.pages(steps.page_tokens()));
  if (!slot.ok()) {
    bench.Missing(measurement.Id() + ": " + std::string(slot.status().message()));
    return;
  }
  const auto plan = ValueOrDie(steps.executable().Prepare(bucket));
  const Bench::Times times = steps.Time(*plan, **slot, shape);
  measurement.value = times.median;
  measurement.low = times.low;
  measurement.high = times.high;
  bench.Keep(measurement);
}

void AddSteps(const char* dense, std::vector<StepCase>& steps) {
  for (int32_t context : {1024, 8192}) {
    for (int32_t sequences : {1, 16, 64, 256}) {
      steps.push_back({dense, Phase::kDecode, sequences, context, 1});
    }
  }
  steps.push_back({dense, Phase::kDecode, 1, 32768, 1});
  steps.push_back({dense, Phase::kDecode, 64, 1024, 1, 1});
  steps.push_back({dense, Phase::kPrefill, 8, 512, 512});
  // A step computes the last 8,192 tokens of the sequences together, or scores the last 4,096.
  for (int32_t context : {1024, 8192}) {
    for (int32_t sequences : {1, 16, 64, 256}) {
      steps.push_back(
          {dense, Phase::kPrefill, sequences, context, std::min(context, 8192 / sequences)});
      steps.push_back(
          {dense, Phase::kScoring, sequences, context, std::min(context, 4096 / sequences)});
    }
  }
}

}  // namespace

std::vector<Case> PlanCases(Scale scale) {
  const auto mechanics = std::make_shared<Mechanics>(scale);
  const auto make = [&](const std::string& id, auto run) {
    return Case{"plans", id, [=](Bench& bench) { run(bench, *mechanics); }};
  };
  std::vector<Case> cases = {
      make("captures", TimeCaptures),
      {"plans", "nodes of XSA", [scale](Bench& bench) { CountNodesOfXsa(bench, scale); }}};
  for (const bool largest : {false, true}) {
    const std::string of = "; " + Tokens(mechanics->bucket(largest).tokens);
    cases.push_back(make("replay and eager launches" + of,
                         [largest](Bench& b, Mechanics& m) { CompareWithEager(b, m, largest); }));
    cases.push_back(make("overlapping steps" + of,
                         [largest](Bench& b, Mechanics& m) { CompareWithOverlap(b, m, largest); }));
  }
  cases.push_back(make("fill", TimeFill));
  return cases;
}

std::vector<Case> StepCases(Scale scale) {
  const ModelConfig config = StepModel(scale);
  Bucket largest = {8192, 256};
  std::vector<StepCase> steps;
  for (const char* dense : {"own", "tuned", "cublaslt"}) {
    if (scale == Scale::kGpu) {
      AddSteps(dense, steps);
    } else {
      largest = {24, 3};
      steps.push_back({dense, Phase::kDecode, 2, 20, 1});
      steps.push_back({dense, Phase::kPrefill, 3, 20, 8});
      steps.push_back({dense, Phase::kScoring, 1, 9, 9});
    }
  }
  const auto cache = std::make_shared<ModelCache>();
  std::vector<Case> cases;
  for (const StepCase& step : steps) {
    const Measurement measures = MeasurementOf(step, config);
    cases.push_back({.part = "steps",
                     .id = measures.Id(),
                     .run = [=](Bench& bench) { TimeStep(bench, step, config, largest, *cache); },
                     .measures = measures});
  }
  return cases;
}

}  // namespace sluice::gpu
