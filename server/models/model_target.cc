#include "server/models/model_target.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "engine/option_specs.h"
#include "server/common/option_specs.h"
#include "server/common/status.h"

namespace sluice {
namespace {

constexpr char kRepository[] = "the repository";
constexpr size_t kMostCached = 4096;  // entries of a folder in a cache of the hub

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

// Returns the path of a snapshot if the folder is a model in a cache of the Hugging Face hub, or an
// empty text. Prefers the snapshot of the branch main.
std::string SnapshotIn(const Directory& folder, const std::string& path) {
  const absl::StatusOr<Directory> snapshots = folder.OpenFolder("snapshots");
  if (!snapshots.ok()) return "";
  const absl::StatusOr<std::vector<std::string>> names = snapshots->List(kMostCached);
  const absl::StatusOr<Directory> refs = folder.OpenFolder("refs");
  if (!names.ok() || names->empty() || !refs.ok()) return "";
  constexpr size_t kMostHash = 256;
  const absl::StatusOr<std::string> main = refs->Read("main", kMostHash);
  const bool has_main = main.ok() && std::ranges::find(*names, *main) != names->end();
  return absl::StrCat(absl::CHexEscape(path), "/snapshots/",
                      absl::CHexEscape(has_main ? *main : names->front()));
}

// Returns which folders to name instead if the folder is a cache of the Hugging Face hub, or a
// model in one; otherwise an empty text.
std::string SnapshotHint(const std::string& name, const Directory& folder,
                         const std::string& path) {
  std::vector<std::string> found = {SnapshotIn(folder, path)};
  const absl::StatusOr<std::vector<std::string>> entries = folder.List(kMostCached);
  for (const std::string& entry : entries.value_or(std::vector<std::string>())) {
    if (!entry.starts_with("models--")) continue;
    const absl::StatusOr<Directory> model = folder.OpenFolder(entry);
    if (model.ok()) found.push_back(SnapshotIn(*model, absl::StrCat(path, "/", entry)));
  }
  std::erase(found, "");
  if (found.empty()) return "";
  return absl::StrCat(
      "; it is a cache of the Hugging Face hub: name the folder of a snapshot in "
      "it, --model ",
      name, "=", SomeOf(found));
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

absl::StatusOr<ModelTarget> FromSpec(const ModelSpec& spec) {
  absl::StatusOr<Directory> folder = Directory::Open(spec.path);
  absl::StatusOr<std::string> fingerprint = folder.ok() ? folder->Fingerprint() : folder.status();
  std::string files;
  if (fingerprint.ok()) {
    files = *fingerprint;
    const absl::Status adapters = AppendAdapters(*folder, spec.adapters, &*fingerprint);
    if (!adapters.ok()) fingerprint = adapters;
  }
  if (!fingerprint.ok()) {
    const bool hub = absl::IsNotFound(fingerprint.status()) && LooksLikeHubId(spec.path);
    return absl::Status(fingerprint.status().code(),
                        absl::StrCat("model ", spec.name, ": ", fingerprint.status().message(),
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
  return ModelTarget{.key = {spec.name, spec.version},
                     .place = spec.path,
                     .folder = *std::move(folder),
                     .files = std::move(files),
                     .fingerprint = *std::move(fingerprint),
                     .options = options,
                     .ladder = spec.ladder};
}

absl::StatusOr<ModelTarget> FromRepository(const ModelRepository& repository,
                                           const ModelRepository::Found& found, int64_t version) {
  absl::StatusOr<Directory> folder = repository.Folder(found, version);
  SLUICE_ASSIGN_OR_RETURN(const std::string files,
                          folder.ok() ? folder->Fingerprint() : folder.status());
  std::string fingerprint = files;
  SLUICE_RETURN_IF_ERROR(AppendAdapters(*folder, /*path=*/"", &fingerprint));
  return ModelTarget{.key = {found.name, version},
                     .place = kRepository,
                     .folder = *std::move(folder),
                     .files = files,
                     .fingerprint = std::move(fingerprint)};
}

absl::Status PutDraftsFirst(std::vector<ModelTarget>* targets) {
  std::map<std::string, std::string> drafts;  // the fingerprints by name
  for (const ModelTarget& target : *targets) {
    const std::string& draft = target.options.speculation.draft;
    if (!draft.empty()) drafts[draft] = "";
  }
  std::map<std::string, int64_t> versions;
  for (const ModelTarget& target : *targets) {
    const auto& [name, version] = target.key;
    const auto found = drafts.find(name);
    if (found == drafts.end() || version < versions[name]) continue;
    found->second = target.fingerprint;
    versions[name] = version;
  }
  for (ModelTarget& target : *targets) {
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
      *targets, [&](const ModelTarget& target) { return drafts.contains(target.key.first); });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<ModelRepository>> OpenRepository(const std::string& path) {
  if (path.empty()) return std::nullopt;
  absl::StatusOr<ModelRepository> root = ModelRepository::Open(path);
  if (root.ok()) return *std::move(root);
  return absl::Status(root.status().code(),
                      absl::StrCat("model_repository: ", root.status().message()));
}

int64_t CountModels(const std::vector<ModelSpec>& models, const std::string& path) {
  const absl::StatusOr<std::optional<ModelRepository>> repository = OpenRepository(path);
  const bool lists = repository.ok() && repository->has_value();
  return std::ssize(models) + (lists ? std::ssize(NamesIn(**repository)) : 0);
}

absl::StatusOr<std::vector<ModelTarget>> FindTargets(
    const std::vector<ModelSpec>& models, const std::optional<ModelRepository>& repository,
    ModelFailures* failures, Log* log) {
  std::vector<ModelTarget> targets;
  std::set<std::string> names, drafts;
  for (const ModelSpec& spec : models) {
    SLUICE_ASSIGN_OR_RETURN(ModelTarget target, FromSpec(spec));
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
          absl::StrCat("model_repository: ", found.name, ": ", found.status.message()));
    }
    if (!found.status.ok()) {
      log->Warn("not a model",
                {{"name", found.name}, {"reason", std::string(found.status.message())}});
      continue;
    }
    if (names.contains(found.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model ", found.name,
          " is in the list of models and in the model repository; remove it from one of them"));
    }
    const bool required = drafts.contains(found.name);
    const int64_t version = found.versions.back();
    absl::StatusOr<ModelTarget> target = FromRepository(*repository, found, version);
    if (target.ok()) {
      target->required = required;
      targets.push_back(*std::move(target));
      continue;
    }
    const ModelKey key = {found.name, version};
    const absl::Status failed = OfModel(key, kRepository, target.status());
    if (required) return failed;
    failures->push_back({key, failed});
  }
  SLUICE_RETURN_IF_ERROR(PutDraftsFirst(&targets));
  return targets;
}

absl::StatusOr<ModelTarget> FindTarget(const std::vector<ModelSpec>& models,
                                       const std::optional<ModelRepository>& repository,
                                       const std::string& name, std::optional<int64_t> version) {
  const ModelSpec* spec = nullptr;
  std::vector<std::string> known;
  std::vector<int64_t> versions;  // the configured versions of `name`
  for (const ModelSpec& each : models) {
    known.push_back(each.name);
    if (each.name != name) continue;
    versions.push_back(each.version);
    if (version.has_value() && each.version != *version) continue;
    if (spec == nullptr || each.version > spec->version) spec = &each;
  }
  if (spec != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(ModelTarget target, FromSpec(*spec));
    const std::string& draft = target.options.speculation.draft;
    if (draft.empty() || draft == name) return target;
    SLUICE_ASSIGN_OR_RETURN(ModelTarget drafting,
                            FindTarget(models, repository, draft, std::nullopt));
    std::vector<ModelTarget> both;
    both.push_back(std::move(drafting));
    both.push_back(std::move(target));
    SLUICE_RETURN_IF_ERROR(PutDraftsFirst(&both));
    return std::move(both.back());
  }
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

absl::Status OfModel(const ModelKey& key, absl::string_view place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("model ", key.first, " version ", key.second,
                                                  " from ", place, ": ", status.message()));
}

absl::Status MissingFile(const ModelTarget& target, const absl::Status& status) {
  if (target.place == kRepository) return status;
  std::string hint = SnapshotHint(target.key.first, target.folder, target.place);
  if (hint.empty()) hint = RepositoryHint(target.folder, target.place);
  return absl::NotFoundError(absl::StrCat(status.message(), hint));
}

absl::Status NoSuchName(absl::string_view kind, const std::string& name,
                        std::optional<int64_t> version, absl::string_view where,
                        const std::vector<std::string>& known) {
  return absl::NotFoundError(
      absl::StrCat("no ", kind, " ", Shown(name, version), " ", where, Suggestion(name, known),
                   known.empty() ? "; there is none" : absl::StrCat("; known: ", SomeOf(known))));
}

absl::Status NoVersion(const std::string& name, std::optional<int64_t> version,
                       absl::string_view where, const std::vector<int64_t>& known) {
  return absl::NotFoundError(absl::StrCat("no model ", Shown(name, version), " ", where,
                                          "; known versions: ", absl::StrJoin(known, ", ")));
}

}  // namespace sluice
