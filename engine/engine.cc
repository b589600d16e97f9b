#include "engine/engine.h"

#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/model_runner.h"
#include "engine/mutex.h"
#include "engine/warm_up.h"

namespace sluice {
namespace {

// A request's id names its runner in the high bits.
constexpr int kSerialBits = 48;

// For messages: printable whatever the bytes.
std::string Quoted(std::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(absl::string_view(text.data(), text.size())), "'");
}

absl::StatusOr<int64_t> ParseVersion(std::string_view text) {
  int64_t version = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, version);
  if (error != std::errc() || parsed != end || text.front() == '-') {
    return absl::InvalidArgumentError(
        absl::StrCat("model version ", Quoted(text), " is not a decimal number below 2^63"));
  }
  return version;
}

// Lock order: serve_mu_, mu_, a runner's own.
class EngineImpl : public Engine {
 public:
  EngineImpl(const EngineOptions& options, Backend* backend, Clock* clock, Observer* observer)
      : options_(options), backend_(backend), clock_(clock), observer_(observer) {}

  ~EngineImpl() override { Drain(clock_->Now()); }

  absl::Status Serve(std::shared_ptr<const Model> model) override {
    MutexLock serving(&serve_mu_);  // one warm-up at a time
    uint64_t index = 0;
    {
      MutexLock lock(&mu_);
      if (draining_) return absl::UnavailableError("the engine is draining");
      if (Find(model->name, model->version) != nullptr) {
        return absl::AlreadyExistsError(absl::StrCat("version ", model->version, " of model '",
                                                     model->name, "' is served already"));
      }
      index = runners_.size();
    }
    absl::StatusOr<PreparedModel> prepared = WarmUp(model, options_, backend_, clock_, observer_);
    if (!prepared.ok()) return prepared.status();
    auto runner =
        std::make_unique<ModelRunner>(index << kSerialBits, std::move(model), *std::move(prepared),
                                      options_, backend_->info(), clock_, observer_);
    MutexLock lock(&mu_);
    if (draining_) runner->StopAdmission();
    runners_.push_back(std::move(runner));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                       std::string_view version) const override {
    if (version.empty()) {
      MutexLock lock(&mu_);
      if (const ModelRunner* highest = FindHighest(name)) return highest->model();
    } else {
      const absl::StatusOr<int64_t> number = ParseVersion(version);
      if (!number.ok()) return number.status();
      MutexLock lock(&mu_);
      if (const ModelRunner* runner = Find(name, *number)) return runner->model();
      if (FindHighest(name) != nullptr) {
        return absl::NotFoundError(
            absl::StrCat("model ", Quoted(name), " has no version ", *number));
      }
    }
    return absl::NotFoundError(absl::StrCat("no model ", Quoted(name)));
  }

  std::vector<std::shared_ptr<const Model>> Models() const override {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<const Model>> models;
    for (const auto& runner : runners_) models.push_back(runner->model());
    return models;
  }

  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                   MonoTime received) override {
    ModelRunner* const runner = RunnerOf(request.model.get());
    if (runner == nullptr) {
      observer_->OnRejected(request.model ? request.model->name : "", Rejection::kUnknownModel);
      return absl::NotFoundError("the request's model is not served");
    }
    return runner->Submit(std::move(request), std::move(sink), received);
  }

  void Cancel(RequestId id) override {
    ModelRunner* runner = nullptr;
    {
      MutexLock lock(&mu_);
      const uint64_t index = id >> kSerialBits;
      if (index < runners_.size()) runner = runners_[index].get();
    }
    if (runner != nullptr) runner->Cancel(id);
  }

  void Drain(MonoTime deadline) override {
    {
      MutexLock lock(&mu_);
      draining_ = true;
    }
    const std::vector<ModelRunner*> runners = Runners();
    for (ModelRunner* runner : runners) runner->StopAdmission();
    for (ModelRunner* runner : runners) runner->AwaitIdle(deadline);
  }

  std::vector<ModelStats> Stats() const override {
    std::vector<ModelStats> stats;
    for (const ModelRunner* runner : Runners()) stats.push_back(runner->Stats());
    return stats;
  }

  const BackendInfo& backend_info() const override { return backend_->info(); }

 private:
  const ModelRunner* Find(std::string_view name, int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& runner : runners_) {
      const Model& model = *runner->model();
      if (model.name == name && model.version == version) return runner.get();
    }
    return nullptr;
  }

  const ModelRunner* FindHighest(std::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const ModelRunner* highest = nullptr;
    for (const auto& runner : runners_) {
      if (runner->model()->name != name) continue;
      if (highest == nullptr || runner->model()->version > highest->model()->version) {
        highest = runner.get();
      }
    }
    return highest;
  }

  ModelRunner* RunnerOf(const Model* model) const {
    MutexLock lock(&mu_);
    for (const auto& runner : runners_) {
      if (runner->model().get() == model) return runner.get();
    }
    return nullptr;
  }

  std::vector<ModelRunner*> Runners() const {
    MutexLock lock(&mu_);
    std::vector<ModelRunner*> runners;
    for (const auto& runner : runners_) runners.push_back(runner.get());
    return runners;
  }

  const EngineOptions options_;
  Backend* const backend_;
  Clock* const clock_;
  Observer* const observer_;

  Mutex serve_mu_;
  mutable Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<ModelRunner>> runners_ ABSL_GUARDED_BY(mu_);  // only ever grows
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options, Backend* backend, Clock* clock,
                                       Observer* observer) {
  return std::make_unique<EngineImpl>(options, backend, clock, observer);
}

}  // namespace sluice
