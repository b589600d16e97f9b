// Strict reading of JSON that comes from a file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice {

// Returns InvalidArgument for bad syntax, a key that appears twice in one object, or more than
// `max_depth` nested objects and arrays.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int max_depth);

// Reads the keys of one object. `status` keeps the first error. Every later read returns some value
// within its range, so that a caller checks `status` once, at the end. A key whose value is null
// counts as absent.
class ObjectReader {
 public:
  // `object` and `status` are not owned; `path` (such as "sluice.xsa.") prefixes keys in errors.
  ObjectReader(const nlohmann::json& object, std::string path, absl::Status* status);

  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  // Returns whether the key is there and null. Has and Find treat such a key as absent.
  bool IsNull(const std::string& key) const;
  // Returns nullptr if the key is absent.
  const nlohmann::json* Find(const std::string& key) const;
  // Returns the key with the prefix, as in errors.
  std::string PathOf(const std::string& key) const { return path_ + key; }
  // Fails if the key is absent and there is no `fallback`, as Number and String do.
  int64_t Integer(const std::string& key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = std::nullopt);
  double Number(const std::string& key, double min, double max,
                std::optional<double> fallback = std::nullopt);
  bool Boolean(const std::string& key, bool fallback);
  std::string String(const std::string& key, size_t max_bytes,
                     std::optional<std::string> fallback = std::nullopt);
  // Returns the index of the value in `names`, or 0 if the key is absent.
  int Choice(const std::string& key, std::span<const std::string_view> names);
  int Choice(const std::string& key, std::initializer_list<std::string_view> names) {
    return Choice(key, std::span(names.begin(), names.size()));
  }
  // Returns the enumerator of E that the value names, or the first if the key is absent.
  template <typename E>
  E Enum(const std::string& key) {
    return kEnumNames<E>[static_cast<size_t>(Choice(key, kNamesOf<E>))].value;
  }
  // Reads an integer or a list of integers; returns an empty list if the key is absent.
  std::vector<int64_t> Integers(const std::string& key, int64_t min, int64_t max);
  // Reads a list of distinct indices below `n` and returns them as flags; all are false if the key
  // is absent.
  std::vector<bool> Flags(const std::string& key, int64_t n);
  // Returns the number of members of an object.
  int64_t Size(const std::string& key, int64_t min, int64_t max);
  // Returns a reader of an empty object if the key is absent.
  ObjectReader Object(const std::string& key);
  // Fails if the object has any other key.
  void AllowOnly(std::initializer_list<const char*> keys);
  // Returns the keys of the object that no call of this reader has looked up, in order.
  std::vector<std::string> Unread() const;

  void Fail(const std::string& key, const std::string& what);

 private:
  std::optional<int64_t> AsInteger(const std::string& key, const nlohmann::json& value, int64_t min,
                                   int64_t max);

  const nlohmann::json* object_;
  std::string path_;
  absl::Status* status_;
  mutable absl::flat_hash_set<std::string> read_;  // keys that were looked up
};

}  // namespace sluice
