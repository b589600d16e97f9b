#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "engine/plans/ladder_file.h"
#include "engine/runner/models/model_table.h"
#include "engine/runner/models/warm_up.h"
#include "engine/step_description.h"

namespace sluice {
namespace {

// For messages: escapes unprintable bytes.
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

LadderChoice LadderOf(const ModelChange& change, const Model* model) {
  const auto found = change.ladders.find(model);
  return found == change.ladders.end() ? LadderChoice() : found->second;
}

// Returns the file of the model with this number: `path` for the first one, `path` and the number
// for others.
std::string PathOf(const std::string& path, size_t number) {
  return path.empty() || number == 0 ? path : absl::StrCat(path, ".", number);
}

// Returns the options, with the device's preferred values for options that are left to the device.
EngineOptions OnDevice(EngineOptions options, const BackendInfo& info) {
  int32_t& sequences = options.batch.max_batch_sequences;
  if (sequences == 0) sequences = info.max_batch_sequences;
  return options;
}

absl::Status OfModel(const Model& model, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("model ", Quoted(model.name), " version ",
                                                  model.version, ": ", status.message()));
}

// Lock order: exchange_mu_, the table's or a reviewer's file_mu_, a runner's own, the journal's.
class EngineImpl : public Engine {
 public:
  EngineImpl(const EngineOptions& options, Backend* backend, Clock* clock, Observer* observer)
      : options_(OnDevice(options, backend->info())),
        backend_(backend),
        clock_(clock),
        observer_(observer) {}

  ~EngineImpl() override { Drain(clock_->Now()); }

  absl::Status Exchange(const ModelChange& change) override {
    MutexLock exchanging(&exchange_mu_);  // one warm-up at a time
    models_after_exchange_ = ModelsAfter(change);
    const absl::Cleanup end = [this] { models_after_exchange_ = 0; };
    std::vector<ModelTable::Addition> added;
    added.reserve(change.serve.size());
    std::vector<std::shared_ptr<const Model>> withdraw = change.withdraw;
    absl::Status status;
    WarmUpRoom room{.models = std::ssize(change.serve), .free_bytes = backend_->FreeMemory()};
    for (const auto& model : change.serve) {
      room.later_weights += EstimateServedWeightMemory(*model);
    }
    for (const std::shared_ptr<const Model>& model : change.serve) {
      room.later_weights -= EstimateServedWeightMemory(*model);
      status =
          draining_ ? ReasonError(Reason::kDraining, "the engine is draining") : OrOutOfMemory([&] {
            room.draft = DraftOf(*model, added);
            return Prepare(model, change, room, &added);
          });
      --room.models;
      if (LeavesOut(change, *model, status)) {
        status = absl::OkStatus();
        std::erase_if(withdraw, [&](const auto& served) { return served->name == model->name; });
        continue;
      }
      if (!status.ok()) break;
      room.free_bytes -= MemoryOf(*added.back().model, /*own_draft=*/room.draft == nullptr);
    }
    if (status.ok()) {
      std::vector<ModelTable::Lease> before;
      status = OrOutOfMemory([&] {
        before = table_.Served();
        for (const ModelTable::Addition& addition : added) {
          ForEachOf(*addition.model->model(), &ServedModel::HandOverJournal);
        }
        return table_.Exchange(std::move(added), withdraw);
      });
      for (const ModelTable::Lease& each : before) {
        const Model& model = *each->model();
        if (table_.FindSnapshot(&model) == nullptr) observer_->OnStepsRecovered(model);
      }
    }
    // The models that are served now write their files: the added ones or, if they are left out or
    // after an error, the former ones.
    for (const std::shared_ptr<const Model>& model : change.serve) {
      const ModelTable::Lease served = table_.Find(model->name, model->version);
      if (served != nullptr) served->StartWriting();
    }
    if (draining_) StopAdmission();  // draining may have begun during the warm-up
    return status;
  }

  absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                       std::string_view version) const override {
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version));
    return served->model();
  }

  absl::StatusOr<Named> Find(std::string_view name, std::string_view version) const override {
    Named named;
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version, &named.head));
    named.model = served->model();
    return named;
  }

  std::vector<std::shared_ptr<const Model>> Models() const override {
    std::vector<std::shared_ptr<const Model>> models;
    for (const ModelTable::Lease& served : table_.Served()) models.push_back(served->model());
    return models;
  }

  int64_t MostModels() const override {
    return std::max<int64_t>(std::ssize(table_.Served()), models_after_exchange_);
  }

  absl::Status LoadAdapter(const Model& model, const AdapterSource& adapter) override {
    const ModelTable::Lease served = table_.FindSnapshot(&model);
    if (served == nullptr) return absl::NotFoundError("the adapter's model is not served");
    if (!model.graph.takes_adapters) {
      return absl::FailedPreconditionError(absl::StrCat(
          "model ", Quoted(model.name), " takes no adapters; make the folder `adapters` in its ",
          "directory, or name a folder in its option adapters, and reload the configuration"));
    }
    return OrOutOfMemory(
        [&] { return served->runner().adapters().Load(adapter, AdapterTable::Room::kEvictIdle); });
  }

  absl::Status UnloadAdapter(const Model& model, std::string_view adapter) override {
    const ModelTable::Lease served = table_.FindSnapshot(&model);
    if (served == nullptr) return absl::NotFoundError("the adapter's model is not served");
    return served->runner().adapters().Unload(adapter);
  }

  std::vector<std::string> Adapters(const Model& model) const override {
    const ModelTable::Lease served = table_.FindSnapshot(&model);
    if (served == nullptr) return {};
    return served->runner().adapters().Names();
  }

  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                   MonoTime received) override {
    const ModelTable::Lease served = table_.FindSnapshot(request.spec->model.get());
    if (served == nullptr) {
      observer_->OnRejected("", Reason::kNotFound);
      return absl::NotFoundError("the request's model is not served");
    }
    return served->runner().Submit(std::move(request), std::move(sink), received);
  }

  absl::StatusOr<RequestId> ResolveAndSubmit(std::string_view name, std::string_view version,
                                             MakeSubmission make, MonoTime received) override {
    Named named;
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version, &named.head));
    named.model = served->model();
    SLUICE_ASSIGN_OR_RETURN(Submission made, make(named));
    return served->runner().Submit(std::move(made.request), std::move(made.sink), received);
  }

  absl::Status StandingRefusal(std::string_view name, std::string_view version,
                               std::string_view owner, int priority, MonoTime received,
                               MonoTime deadline) override {
    const absl::StatusOr<ModelTable::Lease> served = Served(name, version);
    if (!served.ok()) return absl::OkStatus();
    return (*served)->runner().StandingRefusal(owner, priority, received, deadline);
  }

  void Cancel(RequestId id) override {
    if (const ModelTable::Lease served = table_.FindRequest(id)) served->runner().Cancel(id);
  }

  void Drain(MonoTime deadline) override {
    draining_ = true;
    StopAdmission();
    for (const ModelTable::Lease& served : table_.All()) served->runner().AwaitIdle(deadline);
  }

  std::vector<ModelStats> Stats() const override {
    std::vector<ModelStats> stats;
    const std::vector<ModelTable::Lease> all = table_.All();
    for (size_t i = 0; i < all.size(); ++i) {
      if (HasSuccessor(all, i)) continue;
      ModelStats& added = stats.emplace_back(all[i]->Stats());
      const bool served = std::ranges::any_of(all, [&](const ModelTable::Lease& other) {
        return other->model() == added.model->draft;
      });
      if (!served) added.weight_bytes += added.draft_weight_bytes;
    }
    return stats;
  }

  absl::StatusOr<ReviewReport> Review(std::string_view name, std::string_view version,
                                      bool force) override {
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version));
    return served->reviewer().Review(force);
  }

  absl::StatusOr<ReviewReport> ChooseLadder(std::string_view name, std::string_view version,
                                            const LadderChoice& choice, bool keep) override {
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version));
    return served->reviewer().Choose(choice, keep);
  }

  absl::StatusOr<StrategyTrials> TryStrategies(std::string_view name,
                                               std::string_view version) const override {
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version));
    return served->reviewer().TryStrategies();
  }

  absl::StatusOr<StepDescription> DescribeStep(std::string_view name, std::string_view version,
                                               const StepSizes& step, bool profile) const override {
    SLUICE_ASSIGN_OR_RETURN(const ModelTable::Lease served, Served(name, version));
    return served->runner().executable()->DescribeStep(step, profile);
  }

  absl::StatusOr<Explanation> Explain(std::string_view request_id,
                                      std::string_view model) const override {
    absl::StatusOr<Explanation> latest =
        model.empty() ? absl::NotFoundError("no model is served") : NoModel(model);
    for (const ModelTable::Lease& served : table_.All()) {
      if (!model.empty() && served->model()->name != model) continue;
      absl::StatusOr<Explanation> found = served->runner().Explain(request_id);
      const bool later = found.ok() && latest.ok() && found->trace.done > latest->trace.done;
      if (!latest.ok() || later) latest = std::move(found);
    }
    return latest;
  }

  const BackendInfo& backend_info() const override { return backend_->info(); }

 private:
  // Warms up while the other models serve. Requires that `added` has room.
  absl::Status Prepare(const std::shared_ptr<const Model>& model, const ModelChange& change,
                       const WarmUpRoom& room, std::vector<ModelTable::Addition>* added)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(exchange_mu_) {
    EngineOptions options = options_;
    SLUICE_ASSIGN_OR_RETURN(options.ladder, Apply(LadderOf(change, model.get()), options.ladder));
    const RequestId first_id = table_.NextFirstId();
    const size_t number = FileNumberOf(*model, change, *added);
    options.ladder.file = PathOf(options_.ladder.file, number);
    options.history.journal = PathOf(options_.history.journal, number);
    ForEachOf(*model, &ServedModel::HandOverLadder);
    absl::StatusOr<std::unique_ptr<ServedModel>> served = OrOutOfMemory([&] {
      return ServedModel::Create(first_id, model, options, backend_, clock_, observer_, room);
    });
    if (!served.ok()) {
      return OfModel(*model, served.status());
    }
    added->push_back({first_id, *std::move(served)});
    return absl::OkStatus();
  }

  // Returns the number of the model's files. A loaded model keeps its number. Otherwise it is the
  // number whose ladder file was written for the model. If there is none, it is the first number
  // without a ladder file, or with the file of another version that is not served any more.
  size_t FileNumberOf(const Model& model, const ModelChange& change,
                      const std::vector<ModelTable::Addition>& added)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(exchange_mu_) {
    // Numbers below this are examined even if a lower one is free, because a file may be missing.
    constexpr size_t kMinExamined = 16;
    std::map<std::pair<std::string, int64_t>, size_t> loaded;
    const auto keep = [&](const Model& other) {
      const auto found = file_numbers_.find({other.name, other.version});
      if (found != file_numbers_.end()) loaded.insert(*found);
    };
    for (const ModelTable::Lease& each : table_.All()) keep(*each->model());
    for (const ModelTable::Addition& addition : added) keep(*addition.model->model());
    std::erase_if(file_numbers_, [&](const auto& each) {
      return each.first.first == model.name && !loaded.contains(each.first);
    });
    const auto placed = file_numbers_.try_emplace({model.name, model.version}, 0);
    const auto own = placed.first;
    if (!placed.second) return own->second;
    std::optional<size_t> free;
    for (size_t number = 0; !free || number < kMinExamined; ++number) {
      const bool used = std::ranges::any_of(file_numbers_, [&](const auto& other) {
        return &other != &*own && other.second == number;
      });
      if (used) continue;
      const auto owner = LadderFile::OwnerOf(PathOf(options_.ladder.file, number));
      const auto is_owner = [&](const Model& other) {
        return owner == std::pair(other.name, absl::StrCat(other.version));
      };
      if (is_owner(model)) return own->second = number;
      const bool replaceable =
          !owner ||
          (owner->first == model.name &&
           std::ranges::none_of(change.serve, [&](const auto& each) { return is_owner(*each); }));
      if (!free && replaceable) free = number;
    }
    return own->second = *free;
  }

  // Returns the number of models that are served after the change.
  int64_t ModelsAfter(const ModelChange& change) const {
    const std::vector<ModelTable::Lease> served = table_.Served();
    const auto left = std::ranges::count_if(served, [&](const ModelTable::Lease& each) {
      const Model& model = *each->model();
      const bool replaced = std::ranges::any_of(change.serve, [&](const auto& other) {
        return other->name == model.name && other->version == model.version;
      });
      const bool withdrawn =
          std::ranges::find(change.withdraw, each->model()) != change.withdraw.end();
      return !replaced && !withdrawn;
    });
    return left + std::ssize(change.serve);
  }

  // Calls `act` for the models with this name and version, also for withdrawn ones.
  void ForEachOf(const Model& model, void (ServedModel::*act)()) const {
    for (const ModelTable::Lease& each : table_.All()) {
      const Model& other = *each->model();
      if (other.name == model.name && other.version == model.version) ((*each).*act)();
    }
  }

  // Returns whether the change is made without the model, whose preparation returned `prepared`.
  bool LeavesOut(const ModelChange& change, const Model& model,
                 const absl::Status& prepared) const {
    if (prepared.ok() || draining_ || change.leave_out == nullptr) return false;
    const auto ask = [&] {
      return change.leave_out(model, prepared) ? absl::OkStatus() : prepared;
    };
    return OrOutOfMemory(ask).ok();
  }

  // Returns the executable of the model's draft model if a served or an added model has it.
  std::shared_ptr<const ExecutableModel> DraftOf(
      const Model& model, const std::vector<ModelTable::Addition>& added) const {
    if (model.draft == nullptr) return nullptr;
    for (const ModelTable::Addition& addition : added) {
      if (addition.model->model() == model.draft) return addition.model->runner().executable();
    }
    const ModelTable::Lease served = table_.FindSnapshot(model.draft.get());
    return served == nullptr ? nullptr : served->runner().executable();
  }

  // Returns the memory that a model uses or may come to use.
  static int64_t MemoryOf(const ServedModel& served, bool own_draft) {
    const ModelStats stats = served.Stats();
    return stats.weight_bytes + stats.adapters.limit_bytes +
           (own_draft ? stats.draft_weight_bytes : 0) + stats.plan_memory_bytes +
           stats.slot_memory.activation_room + stats.slot_memory.kv;
  }

  void StopAdmission() {
    for (const ModelTable::Lease& served : table_.All()) served->runner().StopAdmission();
  }

  // Returns whether a later model has the same name and version.
  static bool HasSuccessor(const std::vector<ModelTable::Lease>& all, size_t index) {
    const Model& model = *all[index]->model();
    return std::any_of(all.begin() + index + 1, all.end(), [&](const ModelTable::Lease& later) {
      return later->model()->name == model.name && later->model()->version == model.version;
    });
  }

  // Like Resolve. Sets *head to the adapter's own classifier, if it has one.
  absl::StatusOr<ModelTable::Lease> Served(
      std::string_view name, std::string_view version,
      std::shared_ptr<const ClassifierConfig>* head = nullptr) const {
    const std::string_view adapter = AdapterOf(name);
    if (adapter.empty()) return ServedBase(name, version);
    name.remove_suffix(adapter.size() + 1);
    SLUICE_ASSIGN_OR_RETURN(ModelTable::Lease served, ServedBase(name, version));
    SLUICE_ASSIGN_OR_RETURN(auto own, served->runner().adapters().HeadOf(adapter));
    if (head != nullptr) *head = std::move(own);
    return served;
  }

  absl::StatusOr<ModelTable::Lease> ServedBase(std::string_view name,
                                               std::string_view version) const {
    ModelTable::Lease served;
    if (version.empty()) {
      served = table_.FindHighest(name);
    } else {
      SLUICE_ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
      served = table_.Find(name, number);
      if (served == nullptr && table_.FindHighest(name) != nullptr) return NoVersion(name, number);
    }
    if (served == nullptr) return NoModel(name);
    return served;
  }

  // Returns NotFound with the served versions of the model.
  absl::Status NoVersion(std::string_view name, int64_t version) const {
    std::set<int64_t> versions;
    for (const ModelTable::Lease& served : table_.All()) {
      if (served->model()->name == name) versions.insert(served->model()->version);
    }
    return absl::NotFoundError(absl::StrCat("model ", Quoted(name), " has no version ", version,
                                            "; served: ", absl::StrJoin(versions, ", ")));
  }

  // Returns NotFound with the names of some served models.
  absl::Status NoModel(std::string_view name) const {
    constexpr size_t kNamed = 16;
    std::set<std::string> names;
    for (const ModelTable::Lease& served : table_.Served()) names.insert(served->model()->name);
    const bool more = names.size() > kNamed;
    if (more) names.erase(std::next(names.begin(), kNamed), names.end());
    return absl::NotFoundError(absl::StrCat(
        "no model ", Quoted(name),
        names.empty() ? "; none is served" : absl::StrCat("; served: ", absl::StrJoin(names, ", ")),
        more ? ", ..." : ""));
  }

  const EngineOptions options_;
  Backend* const backend_;
  Clock* const clock_;
  Observer* const observer_;

  Mutex exchange_mu_;
  // The numbers of the files of each name and version that was loaded. Versions that are not loaded
  // any more are dropped when another version of their name is prepared.
  std::map<std::pair<std::string, int64_t>, size_t> file_numbers_ ABSL_GUARDED_BY(exchange_mu_);
  std::atomic<int64_t> models_after_exchange_ = 0;  // 0: no exchange is in progress
  std::atomic<bool> draining_ = false;
  ModelTable table_;
};

}  // namespace

absl::Status CheckOptions(const EngineOptions& options, const Model& model,
                          const LadderChoice& ladder, const Backend& backend) {
  EngineOptions own = OnDevice(options, backend.info());
  SLUICE_ASSIGN_OR_RETURN(own.ladder, Apply(ladder, own.ladder));
  const absl::Status status = CheckOptions(own, model, backend);
  return status.ok() ? status : OfModel(model, status);
}

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options, Backend* backend, Clock* clock,
                                       Observer* observer) {
  return std::make_unique<EngineImpl>(options, backend, clock, observer);
}

}  // namespace sluice
