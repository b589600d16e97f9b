// A value per model, by name and version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// Returns whether a version of a model is served.
using IsServed = absl::FunctionRef<bool(std::string_view name, int64_t version)>;

// Thread-safe. A model's value survives a reload of the model, and is dropped some time after the
// model is unloaded: see Retire.
template <typename T>
class PerModel {
 public:
  // Returns the value of the model. The first call for a model creates it with `make()`, which
  // returns unique_ptr<T>.
  template <typename Make>
  std::shared_ptr<T> Get(std::string_view name, int64_t version, Make make) {
    const Key key{name, version};
    MutexLock lock(&mu_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      return found->second->value;
    }
    auto entry = std::make_unique<Entry>(Entry{std::string(name), make()});
    std::shared_ptr<T> value = entry->value;
    entries_.emplace(Key{entry->name, version}, std::move(entry));
    return value;
  }

  // Drops the values of models that have not been served for at least `keep`, as far as the calls
  // of this method have seen. Keeps values that a caller still holds.
  void Retire(IsServed is_served, MonoTime now, nanoseconds keep) {
    MutexLock lock(&mu_);
    absl::erase_if(entries_, [&](const auto& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      Entry& entry = *item.second;
      if (is_served(item.first.name, item.first.version)) {
        entry.unserved_since = MonoTime::max();
        return false;
      }
      entry.unserved_since = std::min(entry.unserved_since, now);
      return now - entry.unserved_since >= keep && entry.value.use_count() == 1;
    });
  }

 private:
  struct Key {
    std::string_view name;  // refers to the name in the entry
    int64_t version;

    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.name, key.version);
    }
  };
  struct Entry {
    std::string name;
    std::shared_ptr<T> value;
    MonoTime unserved_since = MonoTime::max();  // the maximum while the model is served
  };

  Mutex mu_;
  absl::flat_hash_map<Key, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
