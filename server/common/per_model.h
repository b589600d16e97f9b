// A value for each model that was ever seen, by name and version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "engine/model/model.h"

namespace sluice {

// Thread-safe. Entries keep their addresses and are never removed, so that what was counted for a
// model survives its reload. Models are few and trusted: they come from the configuration.
template <typename T>
class PerModel {
 public:
  // Returns the value of the model. The first call for a model creates it with `make()`, which
  // returns unique_ptr<T>.
  template <typename Make>
  T& Get(const Model& model, Make make) {
    const Key key{model.name, model.version};
    MutexLock lock(&mu_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      return *found->second->value;
    }
    auto entry = std::make_unique<Entry>(Entry{model.name, make()});
    T& value = *entry->value;
    entries_.emplace(Key{entry->name, model.version}, std::move(entry));
    return value;
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
    std::unique_ptr<T> value;
  };

  Mutex mu_;
  absl::flat_hash_map<Key, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
