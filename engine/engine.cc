#include "engine/engine.h"

#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/mutex.h"
#include "engine/served_model.h"

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

// Each served model has files of its own: the first one the path given, the others that and their
// number.
std::string PathOf(const std::string& path, size_t index) {
  return path.empty() || index == 0 ? path : absl::StrCat(path, ".", index);
}

// Lock order: serve_mu_, mu_, a runner's own.
class EngineImpl : public Engine {
 public:
  EngineImpl(const EngineOptions& options, Backend* backend, Clock* clock, Observer* observer)
      : options_(options), backend_(backend), clock_(clock), observer_(observer) {}

  ~EngineImpl() override { Drain(clock_->Now()); }

  absl::Status Serve(std::shared_ptr<const Model> model) override {
    MutexLock serving(&serve_mu_);  // one warm-up at a time
    size_t index = 0;
    {
      MutexLock lock(&mu_);
      if (draining_) return absl::UnavailableError("the engine is draining");
      if (Find(model->name, model->version) != nullptr) {
        return absl::AlreadyExistsError(absl::StrCat("version ", model->version, " of model '",
                                                     model->name, "' is served already"));
      }
      index = served_.size();
    }
    EngineOptions options = options_;
    options.ladder.file = PathOf(options_.ladder.file, index);
    options.history.journal = PathOf(options_.history.journal, index);
    absl::StatusOr<std::unique_ptr<ServedModel>> served = ServedModel::Create(
        index << kSerialBits, std::move(model), options, backend_, clock_, observer_);
    if (!served.ok()) return served.status();
    MutexLock lock(&mu_);
    if (draining_) (*served)->runner().StopAdmission();
    served_.push_back(*std::move(served));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                       std::string_view version) const override {
    const absl::StatusOr<ServedModel*> served = Named(name, version);
    if (!served.ok()) return served.status();
    return (*served)->model();
  }

  std::vector<std::shared_ptr<const Model>> Models() const override {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<const Model>> models;
    for (const auto& served : served_) models.push_back(served->model());
    return models;
  }

  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                   MonoTime received) override {
    ServedModel* const served = Serving(request.model.get());
    if (served == nullptr) {
      observer_->OnRejected(request.model ? request.model->name : "", Rejection::kUnknownModel);
      return absl::NotFoundError("the request's model is not served");
    }
    return served->runner().Submit(std::move(request), std::move(sink), received);
  }

  void Cancel(RequestId id) override {
    ServedModel* served = nullptr;
    {
      MutexLock lock(&mu_);
      const uint64_t index = id >> kSerialBits;
      if (index < served_.size()) served = served_[index].get();
    }
    if (served != nullptr) served->runner().Cancel(id);
  }

  void Drain(MonoTime deadline) override {
    {
      MutexLock lock(&mu_);
      draining_ = true;
    }
    const std::vector<ServedModel*> all = All();
    for (ServedModel* served : all) served->runner().StopAdmission();
    for (ServedModel* served : all) served->runner().AwaitIdle(deadline);
  }

  std::vector<ModelStats> Stats() const override {
    std::vector<ModelStats> stats;
    for (const ServedModel* served : All()) stats.push_back(served->Stats());
    return stats;
  }

  absl::StatusOr<OptimizeReport> Optimize(std::string_view name, std::string_view version,
                                          bool force) override {
    const absl::StatusOr<ServedModel*> served = Named(name, version);
    if (!served.ok()) return served.status();
    return (*served)->reviewer().Review(force);
  }

  absl::StatusOr<Explanation> Explain(std::string_view request_id) const override {
    absl::StatusOr<Explanation> latest = absl::NotFoundError("no model is served");
    for (const ServedModel* served : All()) {
      absl::StatusOr<Explanation> found = served->runner().Explain(request_id);
      const bool later = found.ok() && latest.ok() && found->trace.done > latest->trace.done;
      if (!latest.ok() || later) latest = std::move(found);
    }
    return latest;
  }

  const BackendInfo& backend_info() const override { return backend_->info(); }

 private:
  // As Resolve.
  absl::StatusOr<ServedModel*> Named(std::string_view name, std::string_view version) const {
    if (version.empty()) {
      MutexLock lock(&mu_);
      if (ServedModel* highest = FindHighest(name)) return highest;
    } else {
      const absl::StatusOr<int64_t> number = ParseVersion(version);
      if (!number.ok()) return number.status();
      MutexLock lock(&mu_);
      if (ServedModel* served = Find(name, *number)) return served;
      if (FindHighest(name) != nullptr) {
        return absl::NotFoundError(
            absl::StrCat("model ", Quoted(name), " has no version ", *number));
      }
    }
    return absl::NotFoundError(absl::StrCat("no model ", Quoted(name)));
  }

  ServedModel* Find(std::string_view name, int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& served : served_) {
      if (served->model()->name == name && served->model()->version == version) return served.get();
    }
    return nullptr;
  }

  ServedModel* FindHighest(std::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ServedModel* highest = nullptr;
    for (const auto& served : served_) {
      if (served->model()->name != name) continue;
      if (highest == nullptr || served->model()->version > highest->model()->version) {
        highest = served.get();
      }
    }
    return highest;
  }

  ServedModel* Serving(const Model* model) const {
    MutexLock lock(&mu_);
    for (const auto& served : served_) {
      if (served->model().get() == model) return served.get();
    }
    return nullptr;
  }

  std::vector<ServedModel*> All() const {
    MutexLock lock(&mu_);
    std::vector<ServedModel*> all;
    for (const auto& served : served_) all.push_back(served.get());
    return all;
  }

  const EngineOptions options_;
  Backend* const backend_;
  Clock* const clock_;
  Observer* const observer_;

  Mutex serve_mu_;
  mutable Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<ServedModel>> served_ ABSL_GUARDED_BY(mu_);  // only ever grows
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options, Backend* backend, Clock* clock,
                                       Observer* observer) {
  return std::make_unique<EngineImpl>(options, backend, clock, observer);
}

}  // namespace sluice
