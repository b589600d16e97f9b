#include "tests/support/fake_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

uint64_t HashOf(std::span<const int32_t> sequence) {
  uint64_t hash = sequence.size();
  for (int32_t token : sequence) hash = Mix(hash, static_cast<uint64_t>(token));
  return hash;
}

// Returns a number in (-8, 0].
float Score(uint64_t hash) { return -static_cast<float>(hash % 8192) / 1024.0f; }

// The draw that replaces the draws of a failed step.
constexpr int32_t kNoDraw = 1;

class FakeSlot : public Slot {
 public:
  FakeSlot(int32_t pages, int32_t page_tokens, int64_t activations)
      : tokens(static_cast<size_t>(pages * page_tokens), -1),
        pages_(pages),
        activations_(activations) {}
  int32_t pages() const override { return pages_; }
  SlotMemory memory() const override {
    return {.activations = activations_,
            .activation_room = activations_,
            .kv = static_cast<int64_t>(tokens.size() * 4)};
  }

  std::vector<int32_t> tokens;  // [pages, page_tokens]
  // The steps started, oldest first.
  struct Step {
    const Plan* plan;
    const StepBatch* batch;
  };
  std::deque<Step> steps;
  std::vector<int32_t> drawn;  // by the sampled rows of the step that ended last

 private:
  const int32_t pages_;
  const int64_t activations_;
};

}  // namespace

namespace fake {

kernels::SampleResult Draw(std::span<const int32_t> sequence, const kernels::SampleParams& params,
                           int64_t vocab) {
  uint64_t hash = HashOf(sequence);
  if (params.temperature > 0) {
    hash = Mix(Mix(Mix(hash, params.seed), params.token_index), params.sample + 1);
  }
  const auto token = static_cast<int32_t>(hash % static_cast<uint64_t>(vocab));
  return {.token = token, .logprob = Score(Mix(hash, 1))};
}

float Logprob(std::span<const int32_t> sequence, int32_t target) {
  return Score(Mix(HashOf(sequence), static_cast<uint64_t>(target) + 2));
}

float Logit(std::span<const int32_t> sequence, int64_t id) {
  return Score(Mix(HashOf(sequence), static_cast<uint64_t>(id) + 3));
}

int32_t TopId(std::span<const int32_t> sequence, int32_t rank, int64_t vocab) {
  return static_cast<int32_t>((HashOf(sequence) + static_cast<uint64_t>(rank)) %
                              static_cast<uint64_t>(vocab));
}

int32_t TokenOf(std::span<const float> vector) {
  uint64_t hash = vector.size();
  for (const float value : vector) hash = Mix(hash, std::bit_cast<uint32_t>(value));
  return -2 - static_cast<int32_t>(hash % 1'000'000);
}

float CosSim(int64_t layer, int32_t token, int32_t position, int64_t head) {
  return static_cast<float>(((layer * 100 + token) * 100 + position) * 10 + head);
}

float State(std::span<const int32_t> sequence, int64_t i) { return Logit(sequence, 1000 + i); }

float ProjFrac(int64_t layer, int32_t token, int32_t position, int64_t head) {
  return -CosSim(layer, token, position, head);
}

}  // namespace fake

ModelConfig FakeConfig() {
  ModelConfig config;
  config.vocab_size = 97;
  config.layers = 2;
  config.heads = 3;
  config.max_positions = 64;
  config.hidden_size = 5;
  config.xsa.layers = {true, true};
  return config;
}

std::shared_ptr<const Model> FakeModel(const ModelConfig& config, const std::string& name,
                                       int64_t version) {
  auto model = std::make_shared<Model>();
  model->name = name;
  model->version = version;
  model->config = config;
  return model;
}

class FakeBackend::FakePlan : public Plan {
 public:
  FakePlan(FakeBackend* backend, const Bucket& bucket, bool eager = false)
      : backend_(backend), bucket_(bucket), eager_(eager) {
    backend_->CountPlans(1);
  }
  ~FakePlan() override { backend_->CountPlans(-1); }

  const Bucket& bucket() const override { return bucket_; }
  int64_t memory_bytes() const override {
    return bucket_.tokens * backend_->options_.plan_bytes_per_token;
  }
  bool Accepts(const StepNeeds& needs) const override {
    return needs.num_top == 0 || bucket_.tokens >= backend_->options_.top_needs_tokens;
  }
  bool eager() const override { return eager_; }

 private:
  FakeBackend* const backend_;
  const Bucket bucket_;
  const bool eager_;
};

class FakeAdapter : public LoadedAdapter {
 public:
  int64_t bytes() const override { return 10; }
};

class FakeBackend::Executable : public ExecutableModel {
 public:
  Executable(FakeBackend* backend, std::shared_ptr<const Model> model)
      : backend_(backend), model_(std::move(model)) {}

  int64_t weight_bytes() const override { return 1000; }
  RowOrder row_order() const override { return backend_->options_.order; }
  ComputedRows computed_rows() const override { return backend_->options_.rows; }
  void ParallelFor(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t, int64_t)> body) const override {
    backend_->NoteParallelFor(n);
    ExecutableModel::ParallelFor(n, grain, body);
  }

  absl::StatusOr<std::unique_ptr<const LoadedAdapter>> LoadAdapter(
      const Adapter& adapter) const override {
    return std::make_unique<FakeAdapter>();
  }
  absl::StatusOr<int64_t> AdapterBytes(const Adapter& adapter) const override {
    return FakeAdapter().bytes();
  }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const override {
    SLUICE_RETURN_IF_ERROR(backend_->BeginPrepare(bucket));
    return std::make_unique<FakePlan>(backend_, bucket);
  }

  absl::StatusOr<std::unique_ptr<Plan>> Eager(const Bucket& bucket) const override {
    return std::make_unique<FakePlan>(backend_, bucket, /*eager=*/true);
  }

  int64_t page_bytes() const override { return backend_->info_.page_tokens; }
  int64_t activation_bytes(const Bucket& bucket) const override {
    return bucket.tokens * backend_->options_.activation_bytes_per_token;
  }
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                   int32_t pages) const override {
    return std::make_unique<FakeSlot>(pages, backend_->info_.page_tokens,
                                      activation_bytes(largest));
  }

  void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const override {
    SLUICE_CHECK(StepCapacity(plan.bucket(), model_->config.causal).Fits(batch.size()));
    SLUICE_CHECK(!plan.bucket().padded() || batch.tokens() == plan.bucket().tokens);
    auto& steps = static_cast<FakeSlot&>(slot).steps;
    SLUICE_CHECK(static_cast<int32_t>(steps.size()) <= backend_->options_.steps_ahead);
    const bool ahead = !steps.empty();
    steps.push_back({&plan, &batch});
    backend_->NoteStart(static_cast<int32_t>(batch.sequences().size()), ahead);
  }

  absl::Status Finish(Slot& slot) const override {
    auto& fake = static_cast<FakeSlot&>(slot);
    SLUICE_CHECK(!fake.steps.empty());
    const FakeSlot::Step step = fake.steps.front();
    fake.steps.pop_front();
    const absl::Status status = Run(*step.plan, *step.batch, fake);
    fake.drawn.clear();
    for (const SampledRow& row : step.batch->sampled()) {
      fake.drawn.push_back(status.ok() ? row.result->token : kNoDraw);
    }
    return status;
  }

 private:
  absl::Status Run(const Plan& plan, const StepBatch& batch, FakeSlot& slot) const {
    std::vector<int32_t>& cache = slot.tokens;
    RecordedBatch recorded{.bucket = plan.bucket(), .sequences = {}};
    for (const kernels::PageCopy& copy : batch.page_copies()) {
      const int64_t page_tokens = backend_->info_.page_tokens;
      std::copy_n(cache.begin() + copy.from * page_tokens, copy.positions,
                  cache.begin() + copy.to * page_tokens);
    }
    for (int32_t row = 0; row < batch.tokens(); ++row) {
      cache[static_cast<size_t>(batch.kv_slots()[row])] = TokenAt(batch, row, slot);
    }
    for (size_t s = 0; s < batch.sequences().size(); ++s) {
      const StepBatch::Sequence& sequence = batch.sequences()[s];
      recorded.sequences.push_back(
          ReadPages(cache, batch, sequence, sequence.first_position + sequence.count));
    }
    SLUICE_RETURN_IF_ERROR(backend_->BeginReplay(std::move(recorded)));
    for (const SampledRow& row : batch.sampled()) {
      const StepBatch::Sequence& sequence = batch.sequences()[static_cast<size_t>(row.sequence)];
      Sample(row, ReadPages(cache, batch, sequence, row.position + 1));
    }
    for (const StateSum& sum : batch.states()) {
      const StepBatch::Sequence& sequence = batch.sequences()[static_cast<size_t>(sum.sequence)];
      const double none = sum.largest ? -std::numeric_limits<double>::infinity() : 0;
      std::fill_n(sum.out, model_->config.hidden_size, none);
      for (int32_t position = sum.position; position < sum.position + sum.count; ++position) {
        const std::vector<int32_t> tokens = ReadPages(cache, batch, sequence, position + 1);
        for (int64_t i = 0; i < model_->config.hidden_size; ++i) {
          const double state = fake::State(tokens, i);
          sum.out[i] = sum.largest ? std::max(sum.out[i], state) : sum.out[i] + state;
        }
      }
    }
    if (batch.xsa_cos_sim != nullptr) Diagnose(batch, cache);
    return absl::OkStatus();
  }

  int32_t TokenAt(const StepBatch& batch, int32_t row, const FakeSlot& slot) const {
    const int32_t token = batch.token_ids()[static_cast<size_t>(row)];
    const auto width = static_cast<size_t>(model_->config.input_width);
    if (token >= 0) return token;
    if (token < -1) return slot.drawn.at(static_cast<size_t>(StepBatch::DrawnBy(token)));
    return fake::TokenOf(batch.inputs().subspan(static_cast<size_t>(row) * width, width));
  }

  std::vector<int32_t> ReadPages(const std::vector<int32_t>& cache, const StepBatch& batch,
                                 const StepBatch::Sequence& sequence, int32_t count) const {
    const int32_t page_tokens = backend_->info_.page_tokens;
    std::vector<int32_t> tokens;
    for (int32_t position = 0; position < count; ++position) {
      const int32_t page =
          batch.pages()[static_cast<size_t>(sequence.pages_offset + position / page_tokens)];
      tokens.push_back(cache[static_cast<size_t>(page * page_tokens + position % page_tokens)]);
    }
    return tokens;
  }

  void Sample(const SampledRow& row, const std::vector<int32_t>& sequence) const {
    const int64_t vocab = model_->config.vocab_size;
    const int32_t poison = backend_->options_.poison_token;
    if (std::find(sequence.begin(), sequence.end(), poison) != sequence.end()) {
      *row.result = {.token = -1, .logprob = std::numeric_limits<float>::quiet_NaN()};
      return;
    }
    for (int32_t rank = 0; rank < row.num_top; ++rank) {
      row.top_ids[rank] = fake::TopId(sequence, rank, vocab);
      row.top_logprobs[rank] = -static_cast<float>(rank);
    }
    for (int64_t id = 0; row.logits != nullptr && id < vocab; ++id) {
      row.logits[id] = fake::Logit(sequence, id);
    }
    if (row.target >= 0) {
      *row.result = {.token = row.target, .logprob = fake::Logprob(sequence, row.target)};
    } else {
      *row.result = fake::Draw(sequence, row.params, vocab);
    }
  }

  void Diagnose(const StepBatch& batch, const std::vector<int32_t>& cache) const {
    const int64_t heads = model_->config.heads;
    for (int64_t layer = 0; layer < model_->config.layers; ++layer) {
      for (int32_t row = 0; row < batch.tokens(); ++row) {
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t at = (layer * batch.tokens() + row) * heads + head;
          const int32_t token = cache[static_cast<size_t>(batch.kv_slots()[row])];
          const int32_t position = batch.positions()[row];
          batch.xsa_cos_sim[at] = fake::CosSim(layer, token, position, head);
          batch.xsa_proj_frac[at] = fake::ProjFrac(layer, token, position, head);
        }
      }
    }
  }

  FakeBackend* const backend_;
  const std::shared_ptr<const Model> model_;
};

FakeBackend::FakeBackend(const Options& options)
    : options_(options),
      info_{.device = "fake",
            .profile = "fake",
            .page_tokens = options.page_tokens,
            .steps_ahead = options.steps_ahead,
            .timed_runs = options.timed_runs,
            .max_buckets = options.max_buckets} {}

absl::StatusOr<std::unique_ptr<ExecutableModel>> FakeBackend::Load(
    std::shared_ptr<const Model> model) {
  return std::make_unique<Executable>(this, std::move(model));
}

void FakeBackend::OnReplay(std::function<absl::Status(const RecordedBatch&)> hook) {
  MutexLock lock(&mu_);
  on_replay_ = std::move(hook);
}

void FakeBackend::OnParallelFor(std::function<void(int64_t)> hook) {
  MutexLock lock(&mu_);
  on_parallel_for_ = std::move(hook);
}

void FakeBackend::NoteParallelFor(int64_t n) {
  std::function<void(int64_t)> hook;
  {
    MutexLock lock(&mu_);
    hook = on_parallel_for_;
  }
  if (hook) hook(n);
}

void FakeBackend::OnStart(std::function<void(int32_t)> hook) {
  MutexLock lock(&mu_);
  on_start_ = std::move(hook);
}

int FakeBackend::started_ahead() const {
  MutexLock lock(&mu_);
  return started_ahead_;
}

void FakeBackend::NoteStart(int32_t sequences, bool ahead) {
  std::function<void(int32_t)> hook;
  {
    MutexLock lock(&mu_);
    started_ahead_ += ahead ? 1 : 0;
    hook = on_start_;
  }
  if (hook) hook(sequences);
}

void FakeBackend::OnPrepare(std::function<absl::Status(const Bucket&)> hook) {
  MutexLock lock(&mu_);
  on_prepare_ = std::move(hook);
}

int FakeBackend::live_plans() const {
  MutexLock lock(&mu_);
  return live_plans_;
}

void FakeBackend::AwaitLivePlans(int count) const {
  MutexLock lock(&mu_);
  while (live_plans_ != count) plans_changed_.Wait(&mu_);
}

void FakeBackend::CountPlans(int change) {
  MutexLock lock(&mu_);
  live_plans_ += change;
  plans_changed_.SignalAll();
}

std::vector<RecordedBatch> FakeBackend::batches() const {
  MutexLock lock(&mu_);
  return batches_;
}

void FakeBackend::ForgetBatches() {
  MutexLock lock(&mu_);
  batches_.clear();
}

absl::Status FakeBackend::BeginReplay(RecordedBatch batch) {
  std::function<absl::Status(const RecordedBatch&)> hook;
  {
    MutexLock lock(&mu_);
    batches_.push_back(batch);
    hook = on_replay_;
  }
  return hook ? hook(batch) : absl::OkStatus();
}

absl::Status FakeBackend::BeginPrepare(const Bucket& bucket) {
  std::function<absl::Status(const Bucket&)> hook;
  {
    MutexLock lock(&mu_);
    hook = on_prepare_;
  }
  return hook ? hook(bucket) : absl::OkStatus();
}

}  // namespace sluice
