#include "server/models/model_manager.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/out_of_memory.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "engine/model/check_tensors.h"
#include "engine/option_specs.h"
#include "engine/step_description.h"
#include "server/common/option_specs.h"
#include "server/common/status.h"

namespace sluice {
namespace {

constexpr char kFailed[] = "the last load failed: ";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Returns an error unless the path is empty or leads to the folder of the adapter.
absl::Status CheckPath(const Directory& adapters, const Model& model, const std::string& name,
                       const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::filesystem::path given = std::filesystem::path(path).lexically_normal();
  if (!given.has_filename()) given = given.parent_path();  // a slash at the end
  if (given.is_absolute() && given.filename() == name && adapters.IsAt(given.parent_path())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter path is ", Printable(path), "; adapters of model ", model.name,
      " are loaded only from its folder of adapters. Send ", adapters.Place(), "/", name));
}

std::string VersionName(const std::string& name, int64_t version) {
  return absl::StrCat(name, " version ", version);
}

// Returns the most sequences of a step. In padded ladders, wide buckets hold fewer sequences than
// narrow ones.
int32_t MostSequences(const ModelStats& stats) {
  int32_t most = 0;
  for (const auto& each : stats.buckets) most = std::max(most, each.bucket.sequences);
  return most;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> ModelManager::FindDraft(
    const std::string& name, const ModelChange& change) const {
  std::shared_ptr<const Model> found;
  std::vector<std::shared_ptr<const Model>> models = change.serve;
  if (engine_ != nullptr) std::ranges::copy(engine_->Models(), std::back_inserter(models));
  for (const std::shared_ptr<const Model>& model : models) {
    const bool later = found == nullptr || model->version > found->version;
    if (model->name == name && later) found = model;
  }
  if (found != nullptr) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      "speculation.draft is ", name, ", but no such model is loaded. Load ", name, " first"));
}

ModelManager::Checked ModelManager::Check(const std::vector<ModelSpec>& models,
                                          const std::string& repository, const CheckModel& check) {
  Checked checked;
  ModelFailures failures;
  const auto read = [&]() -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<ModelRepository> opened,
                            OpenRepository(repository));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<ModelTarget> targets,
                            FindTargets(models, opened, &failures, log_));
    checked.models = std::ssize(targets);
    ModelChange change;
    const ModelTarget* failed = nullptr;
    SLUICE_RETURN_IF_ERROR(LoadAll(targets, &change, &failures, &failed));
    for (const std::shared_ptr<const Model>& model : change.serve) {
      LogWarnings(*model);
      const absl::Status status = CheckTensors(*model);
      if (!status.ok()) {
        failures.push_back(
            {{},
             absl::Status(status.code(), absl::StrCat("model ", model->name, ": ", Text(status)))});
      } else if (check != nullptr) {
        const auto ladder = change.ladders.find(model.get());
        const absl::Status further =
            check(*model, ladder == change.ladders.end() ? LadderChoice() : ladder->second);
        if (!further.ok()) failures.push_back({{}, further});
      }
      checked.weight_bytes += EstimateServedWeightMemory(*model);
      checked.file_bytes += model->checkpoint.bytes();
      if (model->labels != nullptr) checked.file_bytes += model->labels->checkpoint.bytes();
    }
    return absl::OkStatus();
  };
  const absl::Status status = read();
  for (const ModelFailure& failure : failures) checked.errors.push_back(failure.status);
  if (!status.ok()) checked.errors.push_back(status);
  return checked;
}

absl::StatusOr<ModelManager::Changes> ModelManager::Apply(const std::vector<ModelSpec>& models,
                                                          const std::string& repository) {
  MutexLock turn(&turn_mu_);
  const Interruptible scope(interrupted_);
  ModelFailures failures;
  absl::StatusOr<Changes> changes = ApplyInTurn(models, repository, &failures);
  if (!changes.ok() || !changes->loaded.empty()) on_load_(changes.ok());
  for (const auto& [key, status] : failures) {
    if (changes.ok()) on_load_(false);
    LogFailure(key.first, key.second, status);
  }
  const auto tell = [&] {
    for (const auto& [key, status] : failures) {
      Note(key, absl::StrCat(kFailed, Text(status)));
      if (!changes.ok()) continue;
      changes->failed.push_back(
          absl::StrCat(VersionName(key.first, key.second), ": ", Text(status)));
    }
    return absl::OkStatus();
  };
  OrOutOfMemory(tell).IgnoreError();  // without memory, only these texts are lost
  return changes;
}

absl::StatusOr<ModelManager::Changes> ModelManager::ApplyInTurn(
    const std::vector<ModelSpec>& models, const std::string& repository, ModelFailures* failures) {
  std::vector<ModelSpec> listed = models;  // no step after the exchange can fail
  SLUICE_ASSIGN_OR_RETURN(std::optional<ModelRepository> opened, OpenRepository(repository));
  SLUICE_ASSIGN_OR_RETURN(std::vector<ModelTarget> targets,
                          FindTargets(models, opened, failures, log_));
  std::vector<std::shared_ptr<const Model>> withdraw = engine_->Models();
  std::erase_if(withdraw, [&](const std::shared_ptr<const Model>& model) {
    return std::any_of(targets.begin(), targets.end(), [&](const ModelTarget& target) {
      return target.key == ModelKey(model->name, model->version);
    });
  });
  std::erase_if(targets, [this](const ModelTarget& target) {
    const auto loaded = fingerprints_.find(target.key);
    return loaded != fingerprints_.end() && loaded->second == target.fingerprint &&
           Served(target.key) != nullptr;
  });
  SLUICE_ASSIGN_OR_RETURN(Changes changes, Serve(targets, std::move(withdraw), failures));
  on_change_();  // even without a change, because the first Apply may find no model
  models_.swap(listed);
  MutexLock lock(&mu_);
  repository_ = std::move(opened);
  notes_.clear();  // also of models that are no longer configured
  return changes;
}

absl::StatusOr<std::shared_ptr<const Model>> ModelManager::ModelOfAdapter(
    std::string_view name, std::optional<int64_t> version) const {
  name.remove_suffix(AdapterOf(name).size() + 1);
  return engine_->Resolve(name, version ? absl::StrCat(*version) : "");
}

absl::Status ModelManager::LoadAdapterOf(const Model& model, const std::string& name,
                                         const std::string& path) {
  const std::vector<std::string>& tasks = model.config.task_adapters.names;
  const auto task = std::ranges::find(tasks, name);
  if (task != tasks.end() && path.empty()) {
    return engine_->LoadAdapter(model, TaskSource(&model, task - tasks.begin()));
  }
  SLUICE_ASSIGN_OR_RETURN(const ModelTarget target,
                          FindTarget(models_, repository(), model.name, model.version));
  SLUICE_ASSIGN_OR_RETURN(std::optional<Directory> folder,
                          OpenAdapters(target.folder, target.options.adapters));
  if (!folder || !folder->Has(name)) {
    std::vector<std::string> known;
    if (folder) {
      SLUICE_ASSIGN_OR_RETURN(known, ListAdapters(*folder));
    }
    return NoSuchName("adapter", name, std::nullopt,
                      absl::StrCat("is in the folder of adapters of ", model.name), known);
  }
  SLUICE_RETURN_IF_ERROR(CheckPath(*folder, model, name, path));
  return engine_->LoadAdapter(
      model,
      SourceOf(name, &model, std::make_shared<const Directory>(*std::move(folder)), weights_));
}

absl::Status ModelManager::Load(const std::string& name, std::optional<int64_t> version,
                                const std::string& path) {
  MutexLock turn(&turn_mu_);
  const Interruptible scope(interrupted_);
  const absl::Status status = LoadInTurn(name, version, path);
  on_load_(status.ok());
  if (!status.ok()) LogFailure(name, version, status);
  return status;
}

absl::Status ModelManager::LoadInTurn(const std::string& name, std::optional<int64_t> version,
                                      const std::string& path) {
  if (const std::string adapter(AdapterOf(name)); !adapter.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto model, ModelOfAdapter(name, version));
    SLUICE_RETURN_IF_ERROR(OrOutOfMemory([&] { return LoadAdapterOf(*model, adapter, path); }));
    log_->Info("adapter ready", {{"model", model->name}, {"adapter", adapter}});
    return absl::OkStatus();
  }
  if (!path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter path belongs to adapters, and ", Printable(name),
                     " is a model. Remove path, or load MODEL:ADAPTER"));
  }
  SLUICE_ASSIGN_OR_RETURN(ModelTarget target, FindTarget(models_, repository(), name, version));
  std::vector<std::shared_ptr<const Model>> withdraw;
  if (!version.has_value()) {
    for (const std::shared_ptr<const Model>& model : engine_->Models()) {
      if (model->name == name && model->version != target.key.second) withdraw.push_back(model);
    }
  }
  std::vector<ModelTarget> targets;
  targets.push_back(std::move(target));
  ModelFailures none;  // the only target is required
  SLUICE_RETURN_IF_ERROR(Serve(targets, std::move(withdraw), &none).status());
  if (!version.has_value()) Forget(name, version);  // of versions that this one replaces
  return absl::OkStatus();
}

absl::Status ModelManager::Unload(const std::string& name, std::optional<int64_t> version) {
  MutexLock turn(&turn_mu_);
  if (const std::string adapter(AdapterOf(name)); !adapter.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto model, ModelOfAdapter(name, version));
    SLUICE_RETURN_IF_ERROR(engine_->UnloadAdapter(*model, adapter));
    log_->Info("adapter unloaded", {{"model", model->name}, {"adapter", adapter}});
    return absl::OkStatus();
  }
  ModelChange change;
  std::vector<std::string> known;
  std::vector<int64_t> versions;  // the served versions of `name`
  for (const std::shared_ptr<const Model>& model : engine_->Models()) {
    known.push_back(model->name);
    if (model->name != name) continue;
    versions.push_back(model->version);
    if (!version || model->version == *version) change.withdraw.push_back(model);
  }
  if (change.withdraw.empty()) {
    return versions.empty() ? NoSuchName("model", name, version, "is served", known)
                            : NoVersion(name, version, "is served", versions);
  }
  SLUICE_RETURN_IF_ERROR(engine_->Exchange(change));
  Forget(name, version);
  on_change_();
  LogChange(change);
  return absl::OkStatus();
}

bool ModelManager::MayLeaveOut(const ModelTarget& target, const absl::Status& status) {
  return !target.required && !absl::IsCancelled(status);  // cancelled: the process ends
}

void ModelManager::LeaveOut(const ModelFailures& failures, ModelChange* change) {
  const auto failed = [&](const std::shared_ptr<const Model>& model) {
    return std::ranges::any_of(
        failures, [&](const ModelFailure& failure) { return failure.key.first == model->name; });
  };
  std::erase_if(change->serve, failed);
  std::erase_if(change->withdraw, failed);
}

bool ModelManager::Remains(ModelChange change, const ModelFailures& failures) const {
  LeaveOut(failures, &change);
  const std::vector<std::shared_ptr<const Model>> served = engine_->Models();
  return !change.serve.empty() || std::ranges::any_of(served, [&](const auto& model) {
    return std::ranges::find(change.withdraw, model) == change.withdraw.end();
  });
}

absl::StatusOr<ModelManager::Changes> ModelManager::Serve(
    const std::vector<ModelTarget>& targets, std::vector<std::shared_ptr<const Model>> withdraw,
    ModelFailures* failures) {
  Changes changes;
  if (targets.empty() && withdraw.empty() && failures->empty()) return changes;
  std::map<ModelKey, std::string> earlier;  // notes
  for (const ModelTarget& target : targets) earlier[target.key] = Note(target.key, kLoading);
  const ModelTarget* failed = nullptr;  // the model that ends the operation
  ModelChange change{.serve = {}, .withdraw = std::move(withdraw)};
  change.leave_out = [&](const Model& model, const absl::Status& status) {
    const ModelKey key(model.name, model.version);
    const ModelTarget& target = *std::ranges::find(targets, key, &ModelTarget::key);
    if (!MayLeaveOut(target, status)) {
      failed = &target;
      return false;
    }
    failures->push_back({key, status});
    return Remains(change, *failures);
  };
  const absl::Status status = OrOutOfMemory([&] {
    SLUICE_RETURN_IF_ERROR(LoadAll(targets, &change, failures, &failed));
    LeaveOut(*failures, &change);
    if (!failures->empty() && !Remains(change, *failures)) return failures->front().status;
    return engine_->Exchange(change);
  });
  // If memory runs out here, only the failure reason, a log line, the record of the loaded files,
  // the readiness or the names of the changed models are lost.
  const auto note = [&] {
    for (const ModelTarget& target : targets) {
      const bool left_out =
          std::ranges::find(*failures, target.key, &ModelFailure::key) != failures->end();
      if (left_out) continue;
      if (status.ok()) {
        fingerprints_[target.key] = target.fingerprint;
        Note(target.key, "");
      } else {
        const bool own = &target == failed || targets.size() == 1;
        Note(target.key, own ? absl::StrCat(kFailed, Text(status)) : earlier[target.key]);
      }
    }
    if (!status.ok()) return absl::OkStatus();
    LeaveOut(*failures, &change);
    on_change_();
    LogChange(change);
    for (const auto& model : change.serve) {
      changes.loaded.push_back(VersionName(model->name, model->version));
    }
    for (const auto& model : change.withdraw) {
      changes.withdrawn.push_back(VersionName(model->name, model->version));
    }
    return absl::OkStatus();
  };
  OrOutOfMemory(note).IgnoreError();
  SLUICE_RETURN_IF_ERROR(status);
  return changes;
}

absl::Status ModelManager::LoadAll(const std::vector<ModelTarget>& targets, ModelChange* change,
                                   ModelFailures* failures, const ModelTarget** failed) const {
  for (const ModelTarget& target : targets) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    absl::StatusOr<std::shared_ptr<const Model>> model =
        OrOutOfMemory([&] { return LoadTarget(target, *change); });
    if (!model.ok()) {
      const absl::Status status = OfModel(target.key, target.place, model.status());
      if (!MayLeaveOut(target, status)) {
        *failed = &target;
        return status;
      }
      failures->push_back({target.key, status});
      continue;
    }
    if (!target.ladder.empty()) change->ladders[model->get()] = target.ladder;
    change->serve.push_back(*std::move(model));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Model>> ModelManager::LoadTarget(
    const ModelTarget& target, const ModelChange& change) const {
  ModelOptions options = target.options;
  options.weights = weights_;
  if (!options.speculation.draft.empty()) {
    SLUICE_ASSIGN_OR_RETURN(options.draft, FindDraft(options.speculation.draft, change));
  }
  absl::StatusOr<std::shared_ptr<const Model>> model =
      LoadModel(target.key.first, target.key.second, target.folder, options);
  if (absl::IsNotFound(model.status())) return MissingFile(target, model.status());
  SLUICE_RETURN_IF_ERROR(model.status());
  SLUICE_ASSIGN_OR_RETURN(const std::string files, target.folder.Fingerprint());
  if (files == target.files) return model;
  return absl::UnavailableError("its files were replaced while they were read; load it again");
}

void ModelManager::LogFailure(const std::string& name, std::optional<int64_t> version,
                              const absl::Status& status) {
  const auto tell = [&] {
    std::vector<LogField> fields = {{"model", name}, {"reason", Text(status)}};
    if (version) fields.emplace_back("version", *version);
    log_->Error("load failed", fields);
    return absl::OkStatus();
  };
  OrOutOfMemory(tell).IgnoreError();  // without memory, no log record
}

void ModelManager::LogWarnings(const Model& model) const {
  for (const std::string& warning : model.config.warnings) {
    log_->Warn(warning, {{"model", model.name}, {"version", model.version}});
  }
}

void ModelManager::LogChange(const ModelChange& change) {
  const std::vector<ModelStats> served = engine_->Stats();
  for (const std::shared_ptr<const Model>& model : change.serve) {
    LogWarnings(*model);
    const auto stats = std::ranges::find(served, model, &ModelStats::model);
    log_->Info("model ready",
               {{"model", model->name},
                {"version", model->version},
                {"profile", stats == served.end() ? "" : stats->profile},
                {"most_sequences", stats == served.end() ? 0 : MostSequences(*stats)},
                {"seconds", stats == served.end() ? 0 : Seconds(stats->time_to_ready)}});
  }
  for (const std::shared_ptr<const Model>& model : change.withdraw) {
    log_->Info("model unloaded", {{"model", model->name}, {"version", model->version}});
  }
}

std::string ModelManager::Note(const ModelKey& key, const std::string& reason) {
  MutexLock lock(&mu_);
  const auto note = notes_.find(key);
  std::string previous = note == notes_.end() ? "" : std::move(note->second);
  if (!reason.empty()) {
    notes_[key] = reason;
  } else if (note != notes_.end()) {
    notes_.erase(note);
  }
  return previous;
}

void ModelManager::Forget(const std::string& name, std::optional<int64_t> version) {
  MutexLock lock(&mu_);
  std::erase_if(notes_, [&](const auto& note) {
    const ModelKey& key = note.first;
    return key.first == name && (!version || key.second == *version);
  });
}

absl::Status ModelManager::WithFailedLoad(const absl::Status& error, std::string_view name,
                                          std::string_view version) const {
  if (!absl::IsNotFound(error)) return error;
  MutexLock lock(&mu_);
  for (const auto& [key, note] : notes_) {
    if (key.first != name || !absl::StartsWith(note, kFailed)) continue;
    if (!version.empty() && version != absl::StrCat(key.second)) continue;
    return absl::NotFoundError(
        absl::StrCat(error.message(), ". The last load of ", VersionName(key.first, key.second),
                     " failed; the daemon's log and `sluice doctor` show the reason"));
  }
  return error;
}

std::vector<std::string> ModelManager::FailedModels() const {
  std::vector<std::string> failed;
  MutexLock lock(&mu_);
  for (const auto& [key, note] : notes_) {
    if (absl::StartsWith(note, kFailed)) failed.push_back(VersionName(key.first, key.second));
  }
  return failed;
}

std::optional<ModelRepository> ModelManager::repository() const {
  MutexLock lock(&mu_);
  return repository_;
}

std::shared_ptr<const Model> ModelManager::Served(const ModelKey& key) const {
  for (std::shared_ptr<const Model>& model : engine_->Models()) {
    if (ModelKey(model->name, model->version) == key) return std::move(model);
  }
  return nullptr;
}

absl::StatusOr<std::vector<ModelManager::Entry>> ModelManager::Index() {
  std::map<ModelKey, Entry> entries;
  if (const std::optional<ModelRepository> repository = this->repository()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<ModelRepository::Found> list, repository->List());
    for (const ModelRepository::Found& found : list) {
      if (!found.status.ok()) entries[{found.name, 0}] = {found.name, 0, false, Text(found.status)};
      for (const int64_t version : found.versions) {
        entries[{found.name, version}] = {found.name, version, false, kNotLoaded};
      }
    }
  }
  MutexLock lock(&mu_);
  for (const auto& [key, reason] : notes_) entries[key] = {key.first, key.second, false, reason};
  for (const std::shared_ptr<const Model>& model : engine_->Models()) {
    const ModelKey key(model->name, model->version);
    const auto note = notes_.find(key);
    entries[key] = {key.first, key.second, true, note == notes_.end() ? "" : note->second};
    for (const std::string& adapter : engine_->Adapters(*model)) {
      const ModelKey own(absl::StrCat(key.first, std::string(1, kAdapterSeparator), adapter),
                         key.second);
      entries[own] = {own.first, own.second, true, ""};
    }
  }
  std::vector<Entry> index;
  index.reserve(entries.size());
  for (auto& [key, entry] : entries) index.push_back(std::move(entry));
  return index;
}

}  // namespace sluice
