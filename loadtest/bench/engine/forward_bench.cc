// Times a whole forward pass of a model on the CPU, without queue or server, and the machine's
// peaks in the same run.
//
//   forward_bench MODEL_DIRECTORY [PROFILE] [Google Benchmark's flags]
//
// Score computes whole prompts of mixed lengths in one step, with every next token's
// log-probability. Next draws one token after each of the same prompts. Decode computes one token
// after a context that is in the KV pages. Rows draws one token after each of some prompts of at
// most 64 tokens, for steps of one row and more. Arguments: threads, and how often the prompts'
// lengths are repeated (Decode: tokens of context; Rows: rows of the step).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/model/model.h"
#include "engine/step_batch.h"
#include "kernels/cpu/kv_cache.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice {
namespace {

using kernels::kPageTokens;

constexpr int kRounds = 5;
// The lengths of the prompts: 512 tokens in total, 1152 if padded. The peers compute the same
// prompts.
constexpr int32_t kLengths[] = {16, 24, 32, 48, 64, 72, 112, 144};

// The model and its settings.
struct Subject {
  std::shared_ptr<const Model> model;
  std::string profile;  // as in cpu.profile
};

// A model on a backend with `threads`, and one step of it that can be repeated.
class Forward {
 public:
  Forward(const Subject& subject, int32_t threads, int32_t tokens, int32_t sequences)
      : model_(subject.model),
        bucket_{tokens, sequences},
        batch_(tokens, sequences, static_cast<int32_t>(model_->config.max_positions), kPageTokens) {
    auto backend = MakeCpuBackend({.threads = threads, .profile = subject.profile});
    SLUICE_CHECK(backend.ok());
    backend_ = *std::move(backend);
    auto executable = backend_->Load(model_);
    SLUICE_CHECK(executable.ok());
    executable_ = *std::move(executable);
    auto plan = executable_->Prepare(bucket_);
    auto slot = executable_->CreateSlot(bucket_, MaxPages(bucket_, kPageTokens));
    SLUICE_CHECK(plan.ok() && slot.ok());
    plan_ = *std::move(plan);
    slot_ = *std::move(slot);
    pages_.resize(slot_->pages());
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // Assigns prompts from position 0 on. Scores every row, or draws from the last of each.
  void AssignPrompts(const std::vector<int32_t>& lengths, bool score) {
    std::vector<StepSequence> steps;
    steps.reserve(lengths.size());
    int32_t page = 0;
    for (const int32_t length : lengths) {
      steps.push_back({0, length, DrawTokens(length), &pages_[page]});
      page += (length + kPageTokens - 1) / kPageTokens;
    }
    std::vector<std::pair<int32_t, int32_t>> rows;  // sequence, position
    for (int32_t s = 0; s < static_cast<int32_t>(lengths.size()); ++s) {
      for (int32_t i = score ? 0 : lengths[s] - 1; i < lengths[s]; ++i) {
        rows.emplace_back(s, i);
      }
    }
    Assign(steps, rows, score);
  }

  // Assigns one token at `position` of a sequence whose earlier positions were computed before.
  void AssignToken(int32_t position) {
    const std::vector<StepSequence> steps = {{position, 1, DrawTokens(1), pages_.data()}};
    Assign(steps, {{0, position}}, false);
  }

  void Run() {
    SLUICE_CHECK(executable_->Replay(*plan_, *slot_, batch_).ok());
    for (const kernels::SampleResult& result : results_) SLUICE_CHECK(result.token >= 0);
  }

  // Returns the operations, two per multiply-add, of the layers' matrices, the attention scores and
  // sums over visible keys, and the head.
  double Flops() const {
    double keys = 0;
    for (const StepBatch::Sequence& s : batch_.sequences()) {
      keys += s.count * (s.first_position + (s.count + 1) / 2.0);
    }
    const ModelConfig& config = model_->config;
    const double head = static_cast<double>(config.vocab_size * config.hidden_size);
    return 2.0 * batch_.tokens() * (MatrixElements() - head) +
           4.0 * static_cast<double>(config.layers * config.heads * config.head_dim) * keys +
           2.0 * static_cast<double>(results_.size()) * head;
  }

  // Returns the bytes of the packed weights and of the contexts' keys and values, each read once.
  double Bytes() const {
    const Tensor embedding = Embedding();
    double tokens = 0;
    for (const StepBatch::Sequence& s : batch_.sequences()) tokens += s.first_position + s.count;
    return static_cast<double>(executable_->weight_bytes()) -
           static_cast<double>(embedding.elements()) *
               static_cast<double>(kernels::DTypeBytes(embedding.dtype)) +
           tokens * static_cast<double>(executable_->page_bytes()) / kPageTokens;
  }

  int32_t tokens() const { return batch_.tokens(); }
  const std::string& profile() const { return backend_->info().profile; }

 private:
  const int32_t* DrawTokens(int32_t count) {
    std::vector<int32_t>& tokens = tokens_.emplace_back(static_cast<size_t>(count));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random_() % static_cast<uint64_t>(model_->config.vocab_size));
    }
    return tokens.data();
  }

  void Assign(const std::vector<StepSequence>& steps,
              const std::vector<std::pair<int32_t, int32_t>>& rows, bool score) {
    results_.assign(rows.size(), {});
    std::vector<SampledRow> sampled;
    sampled.reserve(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      sampled.push_back({.sequence = rows[i].first,
                         .position = rows[i].second,
                         .target = score ? static_cast<int32_t>(
                                               i % static_cast<size_t>(model_->config.vocab_size))
                                         : -1,
                         .result = &results_[i]});
    }
    batch_.Assign(steps, sampled, executable_->row_order());
  }

  Tensor Embedding() const {
    const ModelConfig& config = model_->config;
    auto tensor = model_->checkpoint.Find("model.embed_tokens.weight",
                                          {config.vocab_size, config.hidden_size});
    SLUICE_CHECK(tensor.ok());
    return *tensor;
  }

  double MatrixElements() const {
    double elements = 0;
    for (const auto& [name, tensor] : model_->checkpoint.tensors()) {
      if (tensor.shape.size() == 2) elements += static_cast<double>(tensor.elements());
    }
    return elements - static_cast<double>(Embedding().elements());
  }

  std::mt19937_64 random_{1};
  std::shared_ptr<const Model> model_;
  Bucket bucket_;
  StepBatch batch_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Slot> slot_;
  std::vector<int32_t> pages_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<kernels::SampleResult> results_;
};

void Time(benchmark::State& state, Forward& forward) {
  kernels::ThreadPool pool(static_cast<int>(state.range(0)));
  const kernels::Context context = {kernels::ParseProfile(forward.profile()).value(), &pool};
  kernels::Roofline roofline(context);
  kernels::Series times;
  for (auto _ : state) {
    kernels::Measure(context, times, [&] { forward.Run(); });
    roofline.Probe();
  }
  roofline.Report(state);
  roofline.Report(state, "forward", times, forward.Flops(), forward.Bytes());
  state.counters["MB"] = forward.Bytes() / 1e6;
  state.counters["MFLOP"] = forward.Flops() / 1e6;
  state.counters["tokens"] = forward.tokens();
  state.SetLabel(forward.profile());
}

void Prompts(benchmark::State& state, const Subject& subject, bool score) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < state.range(1); ++i) {
    lengths.insert(lengths.end(), std::begin(kLengths), std::end(kLengths));
  }
  const int32_t tokens = std::accumulate(lengths.begin(), lengths.end(), 0);
  Forward forward(subject, static_cast<int32_t>(state.range(0)), tokens,
                  static_cast<int32_t>(lengths.size()));
  forward.AssignPrompts(lengths, score);
  Time(state, forward);
}

void Decode(benchmark::State& state, const Subject& subject) {
  const auto context = static_cast<int32_t>(state.range(1));
  Forward forward(subject, static_cast<int32_t>(state.range(0)), context + 1, 1);
  forward.AssignPrompts({context}, false);
  forward.Run();
  forward.AssignToken(context);
  Time(state, forward);
}

void Rows(benchmark::State& state, const Subject& subject) {
  constexpr int32_t kLongest = 64;
  const auto rows = static_cast<int32_t>(state.range(1));
  std::vector<int32_t> lengths(rows / kLongest, kLongest);
  if (rows % kLongest > 0) lengths.push_back(rows % kLongest);
  Forward forward(subject, static_cast<int32_t>(state.range(0)), rows,
                  static_cast<int32_t>(lengths.size()));
  forward.AssignPrompts(lengths, false);
  Time(state, forward);
}

void Register(const Subject& subject) {
  const auto prompts = [&](const char* name, bool score) {
    benchmark::RegisterBenchmark(name,
                                 [=](benchmark::State& state) { Prompts(state, subject, score); })
        ->Iterations(kRounds)
        ->ArgNames({"threads", "times"})
        ->ArgsProduct({{1, 2}, {1}})
        ->Args({2, 4});
  };
  prompts("Score", true);
  prompts("Next", false);
  benchmark::RegisterBenchmark("Decode", [=](benchmark::State& state) { Decode(state, subject); })
      ->Iterations(kRounds)
      ->ArgNames({"threads", "context"})
      ->ArgsProduct({{1, 2}, {127}});
  benchmark::RegisterBenchmark("Rows", [=](benchmark::State& state) { Rows(state, subject); })
      ->Iterations(kRounds)
      ->ArgNames({"threads", "rows"})
      ->ArgsProduct({{1, 2}, {1, 2, 4, 8, 16, 32, 64, 256, 1024}});
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL_DIRECTORY [PROFILE] [flags of Google Benchmark]\n",
                 argv[0]);
    return 2;
  }
  const std::string profile = argc == 3 ? argv[2] : "auto";
  if (const auto parsed = kernels::ParseProfile(profile); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", std::string(parsed.status().message()).c_str());
    return 1;
  }
  const auto model = LoadModel("model", 1, std::string(argv[1]));
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  Register({*model, profile});
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
