#include "engine/model/repository.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kMaxName = 128;
constexpr size_t kMaxEntries = 4096;

// Returns 0 if `name` is not a version.
int64_t VersionOf(std::string_view name) {
  int64_t version = 0;
  const char* const end = name.data() + name.size();
  const auto [parsed, error] = std::from_chars(name.data(), end, version);
  const bool decimal = error == std::errc() && parsed == end && name.front() != '0';
  return decimal && version > 0 && version <= std::numeric_limits<int32_t>::max() ? version : 0;
}

}  // namespace

bool IsRepositoryName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
                  c == '-';
         });
}

absl::StatusOr<ModelRepository> ModelRepository::Open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(auto root, RootDirectory::Open(path));
  return ModelRepository(std::move(root));
}

absl::StatusOr<std::vector<ModelRepository::Found>> ModelRepository::List() const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, root_->List("", kMaxEntries));
  std::vector<Found> found;
  for (const std::string& name : names) {
    if (!IsRepositoryName(name)) continue;
    Found model = Inspect(name);
    const bool directory = model.status.code() != absl::StatusCode::kFailedPrecondition;
    if (directory) found.push_back(std::move(model));
  }
  if (found.size() > kMaxRepositoryModels) {
    return absl::InvalidArgumentError(absl::StrCat("the model repository has ", found.size(),
                                                   " models; the limit is ", kMaxRepositoryModels));
  }
  return found;
}

absl::StatusOr<ModelRepository::Found> ModelRepository::Find(std::string_view name) const {
  if (!IsRepositoryName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", absl::CHexEscape(absl::string_view(name.data(), std::min(name.size(), kMaxName))),
        "\" is not a valid model name; expected 1 to ", kMaxName,
        " of the characters A-Z a-z 0-9 _ . -, and no dot at the start"));
  }
  Found found = Inspect(std::string(name));
  if (!found.status.ok()) return found.status;
  return found;
}

ModelRepository::Found ModelRepository::Inspect(const std::string& name) const {
  Found found;
  found.name = name;
  const absl::StatusOr<std::vector<std::string>> entries = root_->List(name, kMaxEntries);
  if (!entries.ok()) {
    found.status = entries.status();
    return found;
  }
  const auto has = [&](const char* file) {
    return std::binary_search(entries->begin(), entries->end(), file);
  };
  // A directory of sentence-transformers may have its config.json in a folder.
  if (has("config.json") || has("modules.json")) {
    found.versions = {1};
    return found;
  }
  for (const std::string& entry : *entries) {
    if (const int64_t version = VersionOf(entry); version != 0) found.versions.push_back(version);
  }
  std::sort(found.versions.begin(), found.versions.end());
  found.numbered = true;
  if (found.versions.empty()) {
    found.status = absl::NotFoundError(
        absl::StrCat("model ", name, " has neither config.json nor a numbered version"));
  } else if (found.versions.size() > kMaxRepositoryVersions) {
    found.status = absl::InvalidArgumentError(
        absl::StrCat("model ", name, " has ", found.versions.size(), " versions; the limit is ",
                     kMaxRepositoryVersions));
  }
  return found;
}

absl::StatusOr<Directory> ModelRepository::Folder(const Found& found, int64_t version) const {
  return Directory::OpenBeneath(
      root_, found.numbered ? absl::StrCat(found.name, "/", version) : found.name);
}

}  // namespace sluice
