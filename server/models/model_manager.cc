#include "server/models/model_manager.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

constexpr char kLoading[] = "loading";
constexpr char kNotLoaded[] = "not loaded";
constexpr char kFailed[] = "the last load failed: ";
constexpr char kRepository[] = "the repository";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Returns whether the folder could not be examined. It may still contain a model.
bool IsUnread(const absl::Status& status) {
  return absl::IsUnknown(status) || absl::IsResourceExhausted(status);
}

// Returns the different names in order, at most 16 of them.
std::string SomeOf(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 16;
  std::set<std::string> some(names.begin(), names.end());
  const size_t more = some.size() - std::min(some.size(), kNamed);
  some.erase(std::prev(some.end(), static_cast<ptrdiff_t>(more)), some.end());
  return absl::StrCat(absl::StrJoin(some, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::string Shown(const std::string& name, std::optional<int64_t> version) {
  return absl::StrCat(Printable(name), version ? absl::StrCat(" with version ", *version) : "");
}

// Returns NotFound with the name that is nearest to `name`, and the known ones. `kind` and `where`
// complete the sentence "no KIND NAME WHERE".
absl::Status NoSuchName(absl::string_view kind, const std::string& name,
                        std::optional<int64_t> version, absl::string_view where,
                        const std::vector<std::string>& known) {
  return absl::NotFoundError(
      absl::StrCat("no ", kind, " ", Shown(name, version), " ", where, Suggestion(name, known),
                   known.empty() ? "; there is none" : absl::StrCat("; known: ", SomeOf(known))));
}

// Returns NotFound with the known versions of the model.
absl::Status NoVersion(const std::string& name, std::optional<int64_t> version,
                       absl::string_view where, const std::vector<int64_t>& known) {
  return absl::NotFoundError(absl::StrCat("no model ", Shown(name, version), " ", where,
                                          "; known versions: ", absl::StrJoin(known, ", ")));
}

// Returns the names of the models in the repository.
std::vector<std::string> NamesIn(const ModelRepository& repository) {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<ModelRepository::Found>> list = repository.List();
  if (!list.ok()) return names;
  for (const ModelRepository::Found& found : *list) {
    if (found.status.ok()) names.push_back(found.name);
  }
  return names;
}

// Returns whether the repository has a folder of this name, which may be no model.
bool HasFolder(const ModelRepository& repository, const std::string& name) {
  const absl::StatusOr<std::vector<ModelRepository::Found>> list = repository.List();
  return list.ok() && std::ranges::find(*list, name, &ModelRepository::Found::name) != list->end();
}

// Returns what to do if the folder is no model but has folders of models, or nothing.
std::string RepositoryHint(const Directory& folder, const std::string& path) {
  if (folder.Has("config.json") || folder.Has("modules.json")) return "";
  const absl::StatusOr<ModelRepository> repository = ModelRepository::Open(path);
  if (!repository.ok()) return "";
  const std::vector<std::string> names = NamesIn(*repository);
  if (names.empty()) return "";
  return absl::StrCat("; it has the folders of models ", SomeOf(names),
                      ": serve all of them by --model-repository ", absl::CHexEscape(path),
                      " (model_repository), or one by --model ", names.front(), "=",
                      absl::CHexEscape(path), "/", names.front());
}

// Returns whether a path that does not exist may be meant as the name of a model on a hub.
bool LooksLikeHubId(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < path.size() && path[0] != '.' &&
         path.find('/', slash + 1) == std::string::npos;
}

std::string HubHint(const std::string& id) {
  return absl::StrCat(
      "; if this is the name of a model on the Hugging Face hub, download it first: "
      "sluice-pull ",
      Printable(id), " (docs/your_model.md)");
}

// Appends the names of the model's adapters, and the fingerprints of their folders.
absl::Status AppendAdapters(const Directory& model, const std::string& path,
                            std::string* fingerprint) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<Directory> folder, OpenAdapters(model, path));
  if (!folder) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListAdapters(*folder));
  absl::StrAppend(fingerprint, " adapters ");
  for (const std::string& name : names) {
    SLUICE_ASSIGN_OR_RETURN(const Directory own, folder->OpenFolder(name));
    SLUICE_ASSIGN_OR_RETURN(const std::string files, own.Fingerprint());
    absl::StrAppend(fingerprint, name, " ", files);
  }
  return absl::OkStatus();
}

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

std::string VersionName(const Model& model) {
  return absl::StrCat(model.name, " version ", model.version);
}

// Returns the most sequences of a step. In padded ladders, wide buckets hold fewer sequences than
// narrow ones.
int32_t MostSequences(const ModelStats& stats) {
  int32_t most = 0;
  for (const auto& each : stats.buckets) most = std::max(most, each.bucket.sequences);
  return most;
}

}  // namespace

absl::StatusOr<ModelManager::Target> ModelManager::FromSpec(const ModelSpec& spec) {
  absl::StatusOr<Directory> folder = Directory::Open(spec.path);
  absl::StatusOr<std::string> fingerprint = folder.ok() ? folder->Fingerprint() : folder.status();
  if (fingerprint.ok()) {
    const absl::Status adapters = AppendAdapters(*folder, spec.adapters, &*fingerprint);
    if (!adapters.ok()) fingerprint = adapters;
  }
  if (!fingerprint.ok()) {
    const bool hub = absl::IsNotFound(fingerprint.status()) && LooksLikeHubId(spec.path);
    return absl::Status(fingerprint.status().code(),
                        absl::StrCat("model ", spec.name, ": ", Text(fingerprint.status()),
                                     hub ? HubHint(spec.path) : ""));
  }
  ModelOptions options;
  if (spec.quantization != Quantization::kNone) {
    options.quantization = {.projections = spec.quantization,
                            .head = spec.quantize_head,
                            .group = spec.quantization_group};
  }
  if (spec.kv_dtype != KvType::kF32) options.kv_dtype = spec.kv_dtype;
  options.adapters = spec.adapters;
  options.adapter_memory_bytes = spec.adapter_memory_bytes;
  options.speculation = spec.speculation;
  absl::StrAppend(&*fingerprint, " ", std::string(NameOf(spec.quantization)), " ",
                  spec.quantization_group, spec.quantize_head ? " with head" : "", " ",
                  std::string(NameOf(spec.kv_dtype)), " ", spec.adapter_memory_bytes,
                  " speculation ", SpeculationValue().Format(spec.speculation));
  if (!spec.ladder.empty()) {
    absl::StrAppend(&*fingerprint, " ladder ", LadderChoiceValue().Format(spec.ladder));
  }
  return Target{{spec.name, spec.version}, spec.path, *std::move(folder),
                *std::move(fingerprint),   options,   spec.ladder};
}

absl::StatusOr<ModelManager::Target> ModelManager::FromRepository(
    const ModelRepository& repository, const ModelRepository::Found& found, int64_t version) {
  absl::StatusOr<Directory> folder = repository.Folder(found, version);
  SLUICE_ASSIGN_OR_RETURN(std::string fingerprint,
                          folder.ok() ? folder->Fingerprint() : folder.status());
  SLUICE_RETURN_IF_ERROR(AppendAdapters(*folder, /*path=*/"", &fingerprint));
  return Target{{found.name, version}, kRepository, *std::move(folder), std::move(fingerprint)};
}

absl::StatusOr<std::vector<ModelManager::Target>> ModelManager::Targets(
    const std::vector<ModelSpec>& models, const std::optional<ModelRepository>& repository,
    Failures* failures) {
  std::vector<Target> targets;
  std::set<std::string> names, drafts;
  for (const ModelSpec& spec : models) {
    SLUICE_ASSIGN_OR_RETURN(Target target, FromSpec(spec));
    targets.push_back(std::move(target));
    names.insert(spec.name);
    drafts.insert(spec.speculation.draft);
  }
  if (!repository.has_value()) {
    SLUICE_RETURN_IF_ERROR(PutDraftsFirst(&targets));
    return targets;
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ModelRepository::Found> list, repository->List());
  for (const ModelRepository::Found& found : list) {
    if (IsUnread(found.status)) {
      return absl::UnavailableError(
          absl::StrCat("model_repository: ", found.name, ": ", Text(found.status)));
    }
    if (!found.status.ok()) {
      log_->Warn("not a model", {{"name", found.name}, {"reason", Text(found.status)}});
      continue;
    }
    if (names.contains(found.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model ", found.name,
          " is in the list of models and in the model repository; remove it from one of them"));
    }
    const bool required = failures == nullptr || drafts.contains(found.name);
    const int64_t version = found.versions.back();
    absl::StatusOr<Target> target = FromRepository(*repository, found, version);
    if (target.ok()) {
      target->required = required;
      targets.push_back(*std::move(target));
    } else if (required) {
      return target.status();
    } else {
      failures->push_back({{found.name, version}, target.status()});
    }
  }
  SLUICE_RETURN_IF_ERROR(PutDraftsFirst(&targets));
  return targets;
}

absl::Status ModelManager::PutDraftsFirst(std::vector<Target>* targets) {
  std::map<std::string, std::string> drafts;  // the fingerprints by name
  for (const Target& target : *targets) {
    const std::string& draft = target.options.speculation.draft;
    if (!draft.empty()) drafts[draft] = "";
  }
  std::map<std::string, int64_t> versions;
  for (const Target& target : *targets) {
    const auto& [name, version] = target.key;
    const auto found = drafts.find(name);
    if (found == drafts.end() || version < versions[name]) continue;
    found->second = target.fingerprint;
    versions[name] = version;
  }
  for (Target& target : *targets) {
    const std::string& draft = target.options.speculation.draft;
    if (draft.empty()) continue;
    if (drafts.contains(target.key.first)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model ", target.key.first, ": speculation.draft is ", draft,
          ", but this model drafts for another one or for itself. Remove speculation.draft"));
    }
    if (drafts[draft].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", target.key.first, ": speculation.draft is ", draft,
                       ", which is not the name of a model. Add it to the list of models"));
    }
    absl::StrAppend(&target.fingerprint, " draft ", drafts[draft]);
  }
  std::ranges::stable_partition(
      *targets, [&](const Target& target) { return drafts.contains(target.key.first); });
  return absl::OkStatus();
}

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

absl::StatusOr<std::optional<ModelRepository>> ModelManager::OpenRepository(
    const std::string& path) {
  if (path.empty()) return std::nullopt;
  absl::StatusOr<ModelRepository> root = ModelRepository::Open(path);
  if (root.ok()) return *std::move(root);
  return absl::Status(root.status().code(),
                      absl::StrCat("model_repository: ", Text(root.status())));
}

absl::StatusOr<ModelManager::Checked> ModelManager::Check(const std::vector<ModelSpec>& models,
                                                          const std::string& repository) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ModelRepository> opened, OpenRepository(repository));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Target> targets,
                          Targets(models, opened, /*failures=*/nullptr));
  ModelChange read;
  SLUICE_RETURN_IF_ERROR(LoadAll(targets, &read, /*failures=*/nullptr));
  Checked checked{.models = std::ssize(targets)};
  for (const std::shared_ptr<const Model>& model : read.serve) {
    LogWarnings(*model);
    const absl::Status status = CheckTensors(*model);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("model ", model->name, ": ", Text(status)));
    }
    checked.weight_bytes += EstimateServedWeightMemory(*model);
    checked.file_bytes += model->checkpoint.bytes();
    if (model->labels != nullptr) checked.file_bytes += model->labels->checkpoint.bytes();
  }
  return checked;
}

absl::StatusOr<ModelManager::Changes> ModelManager::Apply(const std::vector<ModelSpec>& models,
                                                          const std::string& repository) {
  MutexLock turn(&turn_mu_);
  Failures failures;
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
          absl::StrCat(key.first, " version ", key.second, ": ", Text(status)));
    }
    return absl::OkStatus();
  };
  OrOutOfMemory(tell).IgnoreError();  // without memory, only these texts are lost
  return changes;
}

absl::StatusOr<ModelManager::Changes> ModelManager::ApplyInTurn(
    const std::vector<ModelSpec>& models, const std::string& repository, Failures* failures) {
  std::vector<ModelSpec> listed = models;  // no step after the exchange can fail
  SLUICE_ASSIGN_OR_RETURN(std::optional<ModelRepository> opened, OpenRepository(repository));
  SLUICE_ASSIGN_OR_RETURN(std::vector<Target> targets, Targets(models, opened, failures));
  std::vector<std::shared_ptr<const Model>> withdraw = engine_->Models();
  std::erase_if(withdraw, [&](const std::shared_ptr<const Model>& model) {
    return std::any_of(targets.begin(), targets.end(), [&](const Target& target) {
      return target.key == Key(model->name, model->version);
    });
  });
  std::erase_if(targets, [this](const Target& target) {
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
  SLUICE_ASSIGN_OR_RETURN(const Target target, Named(model.name, model.version));
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
  SLUICE_ASSIGN_OR_RETURN(Target target, Named(name, version));
  std::vector<std::shared_ptr<const Model>> withdraw;
  if (!version.has_value()) {
    for (const std::shared_ptr<const Model>& model : engine_->Models()) {
      if (model->name == name && model->version != target.key.second) withdraw.push_back(model);
    }
  }
  std::vector<Target> targets;
  targets.push_back(std::move(target));
  Failures none;  // the only target is required
  return Serve(targets, std::move(withdraw), &none).status();
}

absl::StatusOr<ModelManager::Target> ModelManager::Named(const std::string& name,
                                                         std::optional<int64_t> version) {
  const ModelSpec* spec = nullptr;
  std::vector<std::string> known;
  std::vector<int64_t> versions;  // the configured versions of `name`
  for (const ModelSpec& each : models_) {
    known.push_back(each.name);
    if (each.name != name) continue;
    versions.push_back(each.version);
    if (version.has_value() && each.version != *version) continue;
    if (spec == nullptr || each.version > spec->version) spec = &each;
  }
  if (spec != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(Target target, FromSpec(*spec));
    const std::string& draft = target.options.speculation.draft;
    if (draft.empty() || draft == name) return target;
    SLUICE_ASSIGN_OR_RETURN(Target drafting, Named(draft, std::nullopt));
    std::vector<Target> both;
    both.push_back(std::move(drafting));
    both.push_back(std::move(target));
    SLUICE_RETURN_IF_ERROR(PutDraftsFirst(&both));
    return std::move(both.back());
  }
  const std::optional<ModelRepository> repository = this->repository();
  if (!versions.empty()) return NoVersion(name, version, "is configured", versions);
  if (!repository.has_value()) return NoSuchName("model", name, version, "is configured", known);
  const absl::StatusOr<ModelRepository::Found> found = repository->Find(name);
  if (absl::IsNotFound(found.status()) && !HasFolder(*repository, name)) {
    std::ranges::copy(NamesIn(*repository), std::back_inserter(known));
    return NoSuchName("model", name, version, "is configured or in the model repository", known);
  }
  SLUICE_RETURN_IF_ERROR(found.status());
  const int64_t wanted = version.value_or(found->versions.back());
  if (!std::binary_search(found->versions.begin(), found->versions.end(), wanted)) {
    return NoVersion(name, version, "is in the model repository", found->versions);
  }
  return FromRepository(*repository, *found, wanted);
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
  on_change_();
  LogChange(change);
  return absl::OkStatus();
}

bool ModelManager::MayLeaveOut(const Target& target, const absl::Status& status) {
  return !target.required && !absl::IsCancelled(status);  // cancelled: the process ends
}

void ModelManager::LeaveOut(const Failures& failures, ModelChange* change) {
  const auto failed = [&](const std::shared_ptr<const Model>& model) {
    return std::ranges::any_of(
        failures, [&](const Failure& failure) { return failure.key.first == model->name; });
  };
  std::erase_if(change->serve, failed);
  std::erase_if(change->withdraw, failed);
}

bool ModelManager::Remains(ModelChange change, const Failures& failures) const {
  LeaveOut(failures, &change);
  const std::vector<std::shared_ptr<const Model>> served = engine_->Models();
  return !change.serve.empty() || std::ranges::any_of(served, [&](const auto& model) {
    return std::ranges::find(change.withdraw, model) == change.withdraw.end();
  });
}

absl::StatusOr<ModelManager::Changes> ModelManager::Serve(
    const std::vector<Target>& targets, std::vector<std::shared_ptr<const Model>> withdraw,
    Failures* failures) {
  Changes changes;
  if (targets.empty() && withdraw.empty() && failures->empty()) return changes;
  for (const Target& target : targets) Note(target.key, kLoading);
  ModelChange change{.serve = {}, .withdraw = std::move(withdraw)};
  change.leave_out = [&](const Model& model, const absl::Status& status) {
    const Key key(model.name, model.version);
    if (!MayLeaveOut(*std::ranges::find(targets, key, &Target::key), status)) return false;
    failures->push_back({key, status});
    return Remains(change, *failures);
  };
  const absl::Status status = OrOutOfMemory([&] {
    SLUICE_RETURN_IF_ERROR(LoadAll(targets, &change, failures));
    LeaveOut(*failures, &change);
    if (!failures->empty() && !Remains(change, *failures)) return failures->front().status;
    return engine_->Exchange(change);
  });
  // If memory runs out here, only the failure reason, a log line, the record of the loaded files,
  // the readiness or the names of the changed models are lost.
  const auto note = [&] {
    for (const Target& target : targets) {
      const bool left_out =
          std::ranges::find(*failures, target.key, &Failure::key) != failures->end();
      if (status.ok() && !left_out) fingerprints_[target.key] = target.fingerprint;
      if (!left_out) Note(target.key, status.ok() ? "" : absl::StrCat(kFailed, Text(status)));
    }
    if (!status.ok()) return absl::OkStatus();
    LeaveOut(*failures, &change);
    on_change_();
    LogChange(change);
    for (const auto& model : change.serve) changes.loaded.push_back(VersionName(*model));
    for (const auto& model : change.withdraw) changes.withdrawn.push_back(VersionName(*model));
    return absl::OkStatus();
  };
  OrOutOfMemory(note).IgnoreError();
  SLUICE_RETURN_IF_ERROR(status);
  return changes;
}

absl::Status ModelManager::LoadAll(const std::vector<Target>& targets, ModelChange* change,
                                   Failures* failures) const {
  for (const Target& target : targets) {
    absl::StatusOr<std::shared_ptr<const Model>> model =
        OrOutOfMemory([&] { return LoadTarget(target, *change); });
    if (!model.ok()) {
      const absl::Status failed(
          model.status().code(),
          absl::StrCat("model ", target.key.first, " version ", target.key.second, " from ",
                       target.place, ": ", Text(model.status())));
      if (!MayLeaveOut(target, failed)) return failed;
      failures->push_back({target.key, failed});
      continue;
    }
    if (!target.ladder.empty()) change->ladders[model->get()] = target.ladder;
    change->serve.push_back(*std::move(model));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Model>> ModelManager::LoadTarget(
    const Target& target, const ModelChange& change) const {
  ModelOptions options = target.options;
  options.weights = weights_;
  if (!options.speculation.draft.empty()) {
    SLUICE_ASSIGN_OR_RETURN(options.draft, FindDraft(options.speculation.draft, change));
  }
  absl::StatusOr<std::shared_ptr<const Model>> model =
      LoadModel(target.key.first, target.key.second, target.folder, options);
  if (!absl::IsNotFound(model.status()) || target.place == kRepository) return model;
  return absl::NotFoundError(
      absl::StrCat(Text(model.status()), RepositoryHint(target.folder, target.place)));
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

void ModelManager::Note(const Key& key, const std::string& reason) {
  MutexLock lock(&mu_);
  if (reason.empty()) {
    notes_.erase(key);
  } else {
    notes_[key] = reason;
  }
}

std::optional<ModelRepository> ModelManager::repository() const {
  MutexLock lock(&mu_);
  return repository_;
}

std::shared_ptr<const Model> ModelManager::Served(const Key& key) const {
  for (std::shared_ptr<const Model>& model : engine_->Models()) {
    if (Key(model->name, model->version) == key) return std::move(model);
  }
  return nullptr;
}

absl::StatusOr<std::vector<ModelManager::Entry>> ModelManager::Index() {
  std::map<Key, Entry> entries;
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
    const Key key(model->name, model->version);
    const auto note = notes_.find(key);
    entries[key] = {key.first, key.second, true, note == notes_.end() ? "" : note->second};
    for (const std::string& adapter : engine_->Adapters(*model)) {
      const Key own(absl::StrCat(key.first, std::string(1, kAdapterSeparator), adapter),
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
