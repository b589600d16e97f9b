#include "engine/runner/requests/adapter_table.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice {

absl::Status AdapterTable::Load(const Adapter& adapter) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<const LoadedAdapter> weights,
                          executable_->LoadAdapter(adapter));
  std::shared_ptr<const ServedAdapter> replaced;  // freed after the lock
  MutexLock lock(&mu_);
  if (served_.size() >= kMaxAdapters && !served_.contains(adapter.name)) {
    return absl::ResourceExhaustedError(absl::StrCat("model ", model_, " has ", served_.size(),
                                                     " adapters, which is the limit; ",
                                                     "unload one first"));
  }
  replaced = std::exchange(
      served_[adapter.name],
      std::make_shared<const ServedAdapter>(adapter.name, ++last_number_, std::move(weights)));
  return absl::OkStatus();
}

absl::Status AdapterTable::Unload(std::string_view name) {
  std::shared_ptr<const ServedAdapter> unloaded;  // freed after the lock
  MutexLock lock(&mu_);
  const auto found = served_.find(name);
  if (found == served_.end()) return NotFound(name);
  unloaded = std::move(found->second);
  served_.erase(found);
  return absl::OkStatus();
}

std::vector<std::string> AdapterTable::Names() const {
  MutexLock lock(&mu_);
  std::vector<std::string> names;
  names.reserve(served_.size());
  for (const auto& [name, adapter] : served_) names.push_back(name);
  return names;
}

absl::StatusOr<std::shared_ptr<const ServedAdapter>> AdapterTable::Find(
    std::string_view name) const {
  MutexLock lock(&mu_);
  const auto found = served_.find(name);
  if (found == served_.end()) return NotFound(name);
  return found->second;
}

absl::Status AdapterTable::NotFound(std::string_view name) const {
  constexpr size_t kNamed = 64;
  std::string names;
  size_t named = 0;
  for (const auto& [each, adapter] : served_) {
    if (named++ == kNamed) break;
    absl::StrAppend(&names, named == 1 ? "; loaded: " : ", ", each);
  }
  return absl::NotFoundError(absl::StrCat(
      "model ", model_, " has no adapter '",
      absl::CHexEscape(absl::string_view(name.data(), name.size())), "'",
      served_.empty() ? "; none is loaded" : names, served_.size() > kNamed ? ", ..." : ""));
}

int64_t AdapterTable::bytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const auto& [name, adapter] : served_) bytes += adapter->weights->bytes();
  return bytes;
}

}  // namespace sluice
