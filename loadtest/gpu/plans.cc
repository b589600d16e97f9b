#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/cuda/cuda_backend.h"
#include "loadtest/gpu/bench.h"
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

namespace {

// Runs steps of fresh sequences, each as long as possible. The last token of the last one is
// sampled.
class Steps {
 public:
  Steps(Bench& bench, Scale scale, const Bucket& largest)
      : bench_(bench),
        model_(testing::RandomModel(BenchModel(scale), 1, kernels::DType::kBF16)),
        backend_(ValueOrDie(MakeCudaBackend(std::make_unique<Borrowed>(bench.device()), {}))),
        executable_(ValueOrDie(backend_->Load(model_))),
        largest_(largest),
        tokens_(largest.tokens, 1) {
    for (size_t i = 0; i < results_.size(); ++i) {
      batches_.emplace_back(largest.tokens, largest.sequences,
                            static_cast<int32_t>(model_->config.max_positions),
                            backend_->info().page_tokens);
    }
    pages_.resize(PageCount());
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  const ExecutableModel& executable() const { return *executable_; }
  std::unique_ptr<Slot> MakeSlot() const {
    return ValueOrDie(executable_->CreateSlot(largest_, PageCount()));
  }

  void Run(const Plan& plan, Slot& slot, int32_t tokens) {
    Start(plan, slot, tokens);
    OrDie(executable_->Finish(slot));
  }
  double Time(const Plan& plan, Slot& slot, int32_t tokens) {
    return bench_.MedianOf([&] { Run(plan, slot, tokens); });
  }
  // Returns the time of one step of several, each started while the one before it runs.
  double TimeOverlapping(const Plan& plan, Slot& slot, int32_t tokens) {
    constexpr int32_t kSteps = 8;
    return bench_.MedianOf([&] {
      Start(plan, slot, tokens);
      for (int32_t i = 1; i < kSteps; ++i) {
        Start(plan, slot, tokens);
        OrDie(executable_->Finish(slot));
      }
      OrDie(executable_->Finish(slot));
    }) / kSteps;
  }

 private:
  // Lays out the batch, one of two, that no running step uses, and starts it.
  void Start(const Plan& plan, Slot& slot, int32_t tokens) {
    const size_t which = next_++ % batches_.size();
    const auto longest = static_cast<int32_t>(model_->config.max_positions);
    std::vector<StepSequence> sequences;
    const int32_t* page = pages_.data();
    for (int32_t left = tokens; left > 0; left -= sequences.back().count) {
      const int32_t count = std::min(left, longest);
      sequences.push_back(
          {.first_position = 0, .count = count, .tokens = tokens_.data(), .pages = page});
      page += (count + backend_->info().page_tokens - 1) / backend_->info().page_tokens;
    }
    const SampledRow sampled{.sequence = static_cast<int32_t>(sequences.size()) - 1,
                             .position = sequences.back().count - 1,
                             .result = &results_[which]};
    batches_[which].Assign(sequences, {&sampled, 1}, executable_->row_order());
    executable_->Start(plan, slot, batches_[which]);
  }
  int32_t PageCount() const {
    return largest_.tokens / backend_->info().page_tokens + largest_.sequences;
  }

  // A device that forwards to that of the bench, because a backend owns its device.
  class Borrowed final : public Device {
   public:
    explicit Borrowed(Device& device) : device_(device) {}
    const DeviceInfo& info() const override { return device_.info(); }
    int64_t FreeMemory() const override { return device_.FreeMemory(); }
    int64_t captures() const override { return device_.captures(); }
    absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override { return device_.Allocate(bytes); }
    absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
      return device_.AllocatePinned(bytes);
    }
    absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
      return device_.CreateStream();
    }
    absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
      return device_.CreateEvent();
    }
    absl::StatusOr<std::string> DenseLibrary() const override { return device_.DenseLibrary(); }
    std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape) override {
      return device_.DenseCandidates(shape);
    }

   private:
    void Release(void*, bool) override {}  // memory is released by the device that allocated it
    Device& device_;
  };

  Bench& bench_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  const Bucket largest_;
  std::vector<StepBatch> batches_;
  std::array<kernels::SampleResult, 2> results_;
  size_t next_ = 0;
  const std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
};

std::string Tokens(int32_t tokens) { return absl::StrCat("bucket of ", tokens, " tokens"); }

// Reports the time and memory of each bucket's capture.
std::vector<std::unique_ptr<Plan>> TimeCaptures(Bench& bench, Steps& steps,
                                                const std::vector<Bucket>& buckets) {
  std::vector<std::unique_ptr<Plan>> plans;
  for (const Bucket& bucket : buckets) {
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
  return plans;
}

void CountCaptures(Bench& bench, Steps& steps, const std::vector<std::unique_ptr<Plan>>& plans,
                   Slot& slot) {
  const int32_t most = plans.back()->bucket().tokens;
  const int64_t before = bench.device().captures();
  constexpr int32_t kSizes = 100;
  for (int32_t i = 1; i <= kSizes; ++i) {
    const int32_t tokens = std::max(1, most * i / kSizes);
    const auto plan = std::find_if(plans.begin(), plans.end(), [tokens](const auto& candidate) {
      return candidate->bucket().tokens >= tokens;
    });
    steps.Run(**plan, slot, tokens);
  }
  bench.Keep({.part = "plans",
              .name = "captures over 100 sizes",
              .shape = absl::StrCat(plans.size(), " buckets"),
              .value = static_cast<double>(bench.device().captures() - before),
              .unit = "captures"});
}

void CompareWithEager(Bench& bench, Steps& steps, const Plan& plan, Slot& slot) {
  const std::unique_ptr<Slot> eager =
      steps.MakeSlot();  // younger than the plan, so it has no graph of it
  const int32_t tokens = plan.bucket().tokens;
  bench.Keep({.part = "plans",
              .name = "step, replay",
              .shape = Tokens(tokens),
              .value = steps.Time(plan, slot, tokens)});
  bench.Keep({.part = "plans",
              .name = "step, eager launches",
              .shape = Tokens(tokens),
              .value = steps.Time(plan, *eager, tokens)});
}

// Compares steps that run one after another with steps that are started while the one before runs.
void CompareWithOverlap(Bench& bench, Steps& steps, const Plan& plan, Slot& slot) {
  const int32_t tokens = plan.bucket().tokens;
  const double alone = steps.Time(plan, slot, tokens);
  const double overlapping = steps.TimeOverlapping(plan, slot, tokens);
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

// Compares a step with the graph of a bucket that it fills.
void TimeFill(Bench& bench, Steps& steps, const Plan& plan, Slot& slot) {
  const int32_t capacity = plan.bucket().tokens;
  for (int32_t percent : {6, 25, 50, 100}) {
    const int32_t tokens = std::max(1, capacity * percent / 100);
    const auto matched = ValueOrDie(steps.executable().Prepare({tokens, plan.bucket().sequences}));
    const double in_bucket = steps.Time(plan, slot, tokens);
    const double alone = steps.Time(*matched, slot, tokens);
    const std::string shape = absl::StrCat(percent, "% of ", capacity, " tokens");
    bench.Keep({.part = "plans", .name = "step at fill", .shape = shape, .value = in_bucket});
    bench.Keep({.part = "plans",
                .name = "step at fill / matched graph",
                .shape = shape,
                .value = in_bucket / alone,
                .unit = "times"});
  }
}

}  // namespace

void TimePlans(Bench& bench, Scale scale) {
  const bool gpu = scale == Scale::kGpu;
  std::vector<Bucket> buckets;
  for (int32_t tokens : gpu ? std::vector{64, 256, 1024, 4096} : std::vector{8, 24}) {
    buckets.push_back({tokens, gpu ? 64 : 4});
  }
  Steps steps(bench, scale, buckets.back());
  const std::unique_ptr<Slot> slot = steps.MakeSlot();
  const auto plans = TimeCaptures(bench, steps, buckets);
  CountCaptures(bench, steps, plans, *slot);
  CompareWithEager(bench, steps, *plans.front(), *slot);
  CompareWithEager(bench, steps, *plans.back(), *slot);
  CompareWithOverlap(bench, steps, *plans.front(), *slot);
  CompareWithOverlap(bench, steps, *plans.back(), *slot);
  TimeFill(bench, steps, *plans.back(), *slot);
}

}  // namespace sluice::gpu
