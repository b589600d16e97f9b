// Times the evidence for buckets: a step that fills a part of its bucket, by replay and by
// launching its kernels one by one.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "loadtest/gpu/cases.h"
#include "loadtest/gpu/steps.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::gpu {
namespace {

// The shapes of models of three sizes. The larger ones have a share of their layers and of their
// vocabulary, so that all cases fit into five minutes; the time of a step is in proportion.
struct Size {
  const char* name;
  int32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
};
constexpr Size kGpuSizes[] = {
    {"125M", 12, 768, 3072, 12, 12, 64, 32000},
    {"a quarter of 1B", 4, 2048, 8192, 32, 8, 64, 32064},
    {"an eighth of 8B", 4, 4096, 14336, 32, 8, 128, 16032},
};

ModelConfig ConfigOf(const Size& size, int32_t max_positions) {
  ModelConfig config = testing::TinyConfig(size.layers);
  config.hidden_size = size.hidden;
  config.intermediate_size = size.intermediate;
  config.heads = size.heads;
  config.kv_heads = size.kv_heads;
  config.head_dim = size.head_dim;
  config.vocab_size = size.vocab;
  config.max_positions = max_positions;
  return config;
}

struct BucketCase {
  std::string model;
  ModelConfig config;
  const char* dense;
  bool decode;
  Bucket bucket;
  int32_t context;  // positions of each sequence at the end of the step

  std::string Id() const {
    return absl::StrCat(model, ", ", decode ? "decode" : "prefill", ", ", dense, "; bucket of ",
                        bucket.tokens, " tokens");
  }
  // Returns a step that fills `percent` of the bucket.
  StepShape Fill(int32_t percent) const {
    const int32_t tokens = std::max(1, bucket.tokens * percent / 100);
    StepShape shape;
    const int32_t count = decode ? 1 : context;
    for (int32_t left = tokens; left > 0; left -= count) {
      const int32_t own = std::min(left, count);
      shape.pieces.push_back({decode ? context - 1 : 0, own});
    }
    shape.rows = StepShape::Rows::kLastOfEach;
    return shape;
  }
};

// The model that a case used last, because loading takes longer than a case.
struct Loaded {
  std::string key;
  std::optional<Steps> steps;
};

void TimeBucket(Bench& bench, const BucketCase& c, Loaded& loaded) {
  if (const auto library = bench.device().DenseLibrary();
      !library.ok() && std::string(c.dense) == "cublaslt") {
    bench.Missing(absl::StrCat(c.Id(), ": ", library.status().message()));
    return;
  }
  if (const std::string key = absl::StrCat(c.model, c.dense, c.decode); loaded.key != key) {
    loaded.steps.reset();
    loaded.steps.emplace(bench, c.config, c.dense, c.bucket);
    loaded.key = key;
  }
  Steps& steps = *loaded.steps;
  const int32_t pages = c.Fill(100).pages(steps.page_tokens());
  const auto slot = ValueOrDie(steps.executable().CreateSlot(c.bucket, pages));
  const auto plan = ValueOrDie(steps.executable().Prepare(c.bucket));
  // This slot is newer than the plan, so the plan has no graph for it.
  const auto eager = ValueOrDie(steps.executable().CreateSlot(c.bucket, pages));
  const ComputedRows rows = steps.executable().computed_rows();
  const auto keep = [&](const std::string& name, int32_t percent, double value, const char* unit,
                        const Bench::Times* times) {
    Measurement measurement{.part = "buckets",
                            .name = absl::StrCat(name, " at ", percent, "%"),
                            .shape = c.Id(),
                            .value = value,
                            .unit = unit};
    if (times != nullptr) {
      measurement.low = times->low;
      measurement.high = times->high;
    }
    bench.Keep(measurement);
  };
  for (const int32_t percent : {50, 70, 90, 100}) {
    const StepShape shape = c.Fill(percent);
    const Bench::Times replay = steps.Time(*plan, *slot, shape);
    const Bench::Times launches = steps.Time(*plan, *eager, shape);
    keep("step, replay", percent, replay.median, "us", &replay);
    keep("step, launches one by one", percent, launches.median, "us", &launches);
    keep("launches one by one / replay", percent, launches.median / replay.median, "times",
         nullptr);
    keep("computed rows", percent, static_cast<double>(rows.Of(c.bucket.tokens, shape.tokens())),
         "rows", nullptr);
  }
}

}  // namespace

std::vector<Case> BucketCases(Scale scale) {
  std::vector<BucketCase> all;
  const bool gpu = scale == Scale::kGpu;
  const auto add = [&](const std::string& model, const ModelConfig& config) {
    for (const char* dense : {"cublaslt", "own"}) {
      for (const bool decode : {true, false}) {
        const Bucket bucket = gpu ? Bucket{decode ? 256 : 4096, decode ? 256 : 64}
                                  : Bucket{decode ? 4 : 24, decode ? 4 : 3};
        all.push_back({model, config, dense, decode, bucket, gpu ? (decode ? 1024 : 512) : 9});
      }
    }
  };
  if (gpu) {
    for (const Size& size : kGpuSizes) add(size.name, ConfigOf(size, /*max_positions=*/1024));
  } else {
    add("tiny", testing::TinyConfig(1));
  }
  const auto loaded = std::make_shared<Loaded>();
  std::vector<Case> cases;
  for (const BucketCase& c : all) {
    cases.push_back({"buckets", c.Id(), [=](Bench& bench) { TimeBucket(bench, c, *loaded); }});
  }
  return cases;
}

}  // namespace sluice::gpu
