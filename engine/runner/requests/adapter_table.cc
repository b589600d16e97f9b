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
  replaced = std::exchange(
      served_[adapter.name],
      std::make_shared<const ServedAdapter>(adapter.name, ++last_number_, std::move(weights)));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ServedAdapter>> AdapterTable::Find(
    std::string_view name) const {
  constexpr size_t kNamed = 64;
  MutexLock lock(&mu_);
  if (const auto found = served_.find(name); found != served_.end()) return found->second;
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
