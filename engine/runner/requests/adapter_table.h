// The adapters of one served model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/backend.h"
#include "engine/model/adapter.h"

namespace sluice {

// An adapter that requests use. A request keeps it until it ends.
struct ServedAdapter {
  std::string name;
  // Different for each load: KV pages of another load with the same name are not reused.
  uint64_t number;
  std::unique_ptr<const LoadedAdapter> weights;
};

// Thread-safe. The executable model is not owned and outlives the table.
class AdapterTable {
 public:
  AdapterTable(std::string model, const ExecutableModel* executable)
      : model_(std::move(model)), executable_(executable) {}

  // Packs an adapter and serves it, in place of the one with the same name. Returns
  // ResourceExhausted if there would be more than kMaxAdapters.
  absl::Status Load(const Adapter& adapter);
  // Stops serving an adapter. Requests that use it finish on it. Returns NotFound as Find does.
  absl::Status Unload(std::string_view name);
  // Returns the names in order.
  std::vector<std::string> Names() const;
  // Returns NotFound, which names the served adapters, if there is none of this name.
  absl::StatusOr<std::shared_ptr<const ServedAdapter>> Find(std::string_view name) const;
  // Returns the bytes of the adapters.
  int64_t bytes() const;

 private:
  absl::Status NotFound(std::string_view name) const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const std::string model_;
  const ExecutableModel* const executable_;
  mutable Mutex mu_;
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<const ServedAdapter>, std::less<>> served_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
