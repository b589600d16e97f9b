#include "base/json_reader.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using nlohmann::json;

const json& EmptyObject() {
  static const json* const empty = new json(json::object());
  return *empty;
}

// Returns a key of the file in a form that is safe in an error message.
std::string Printable(const std::string& key) { return absl::CEscape(key.substr(0, 64)); }

// Rejects documents that the parser lets pass; a rejected document stops growing at once.
class Guard {
 public:
  explicit Guard(int max_depth) : max_depth_(max_depth) {}

  bool Accept(int depth, json::parse_event_t event, const json& parsed) {
    if (!error_.empty()) return false;
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= max_depth_) Reject(absl::StrCat("nested deeper than ", max_depth_));
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        CheckNew(parsed.get_ref<const std::string&>());
        break;
      default:
        break;
    }
    return error_.empty();
  }

  const std::string& error() const { return error_; }

 private:
  void CheckNew(const std::string& key) {
    if (!keys_.back().insert(key).second)
      Reject(absl::StrCat("key \"", Printable(key), "\" appears twice"));
  }

  void Reject(std::string what) { error_ = std::move(what); }

  int max_depth_;
  std::vector<absl::flat_hash_set<std::string>> keys_;
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseJson(std::string_view text, int max_depth) {
  Guard guard(max_depth);
  json document;
  std::string error;
  try {
    document = json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
      return guard.Accept(depth, event, parsed);
    });
  } catch (const json::parse_error& failure) {
    error = absl::StrCat("bad JSON syntax at byte ", failure.byte);
  } catch (const json::exception&) {
    error = "bad JSON: a number is out of range";
  }
  if (!guard.error().empty()) error = guard.error();
  if (!error.empty()) return absl::InvalidArgumentError(error);
  return document;
}

ObjectReader::ObjectReader(const json& object, std::string path, absl::Status* status)
    : object_(&object), path_(std::move(path)), status_(status) {}

const json* ObjectReader::Find(const std::string& key) const {
  read_.insert(key);
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::vector<std::string> ObjectReader::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : object_->items()) {
    if (!read_.contains(key)) unread.push_back(key);
  }
  return unread;
}

bool ObjectReader::IsNull(const std::string& key) const {
  read_.insert(key);
  const auto it = object_->find(key);
  return it != object_->end() && it->is_null();
}

void ObjectReader::Fail(const std::string& key, const std::string& what) {
  status_->Update(absl::InvalidArgumentError(absl::StrCat(path_, Printable(key), " ", what)));
}

std::optional<int64_t> ObjectReader::AsInteger(const std::string& key, const json& value,
                                               int64_t min, int64_t max) {
  if (!value.is_number_integer()) {
    Fail(key, "is not an integer");
    return std::nullopt;
  }
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > static_cast<uint64_t>(std::max<int64_t>(max, 0));
  if (too_large || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    Fail(key, absl::StrCat("is ", value.dump(), ", must be in [", min, ", ", max, "]"));
    return std::nullopt;
  }
  return value.get<int64_t>();
}

int64_t ObjectReader::Integer(const std::string& key, int64_t min, int64_t max,
                              std::optional<int64_t> fallback) {
  const json* value = Find(key);
  if (value != nullptr) return AsInteger(key, *value, min, max).value_or(min);
  if (!fallback) Fail(key, "is missing");
  return fallback.value_or(min);
}

double ObjectReader::Number(const std::string& key, double min, double max,
                            std::optional<double> fallback) {
  const json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return fallback.value_or(min);
  }
  if (!value->is_number()) {
    Fail(key, "is not a number");
    return min;
  }
  const double number = value->get<double>();
  if (number >= min && number <= max) return number;
  Fail(key, absl::StrCat("is ", number, ", must be in [", min, ", ", max, "]"));
  return min;
}

bool ObjectReader::Boolean(const std::string& key, bool fallback) {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, "is not true or false");
  return fallback;
}

std::string ObjectReader::String(const std::string& key, size_t max_bytes,
                                 std::optional<std::string> fallback) {
  const json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return fallback.value_or("");
  }
  if (!value->is_string()) {
    Fail(key, "is not a string");
    return "";
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= max_bytes) return text;
  Fail(key, absl::StrCat("has ", text.size(), " bytes; the limit is ", max_bytes));
  return "";
}

int ObjectReader::Choice(const std::string& key, std::span<const std::string_view> names) {
  const json* value = Find(key);
  if (value == nullptr) return 0;
  const auto found = value->is_string() ? std::find(names.begin(), names.end(),
                                                    value->get_ref<const std::string&>())
                                        : names.end();
  if (found != names.end()) return found - names.begin();
  std::string known;
  for (const std::string_view name : names) known.append(known.empty() ? "" : ", ").append(name);
  Fail(key, absl::StrCat("is not supported, must be one of: ", known));
  return 0;
}

std::vector<int64_t> ObjectReader::Integers(const std::string& key, int64_t min, int64_t max) {
  const json* value = Find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {AsInteger(key, *value, min, max).value_or(min)};
  std::vector<int64_t> all;
  for (const json& element : *value) {
    const std::optional<int64_t> i = AsInteger(key, element, min, max);
    if (!i) break;
    all.push_back(*i);
  }
  return all;
}

std::vector<bool> ObjectReader::Flags(const std::string& key, int64_t n) {
  std::vector<bool> flags(n, false);
  const json* value = Find(key);
  if (value != nullptr && !value->is_array()) Fail(key, "is not a list");
  for (int64_t i : Integers(key, 0, n - 1)) {
    if (flags[i]) Fail(key, absl::StrCat("names ", i, " twice"));
    flags[i] = true;
  }
  return flags;
}

int64_t ObjectReader::Size(const std::string& key, int64_t min, int64_t max) {
  const nlohmann::json* value = Find(key);
  const int64_t size = value != nullptr && value->is_object() ? std::ssize(*value) : -1;
  if (size >= min && size <= max) return size;
  Fail(key, absl::StrCat("must be an object of ", min, " to ", max, " members"));
  return min;
}

ObjectReader ObjectReader::Object(const std::string& key) {
  const json* value = Find(key);
  const bool usable = value != nullptr && value->is_object();
  if (value != nullptr && !usable) Fail(key, "is not an object");
  return ObjectReader(usable ? *value : EmptyObject(), absl::StrCat(path_, Printable(key), "."),
                      status_);
}

void ObjectReader::AllowOnly(std::initializer_list<const char*> keys) {
  std::string known;
  for (const char* const name : keys) known.append(known.empty() ? "" : ", ").append(name);
  for (const auto& [key, value] : object_->items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    Fail(key, absl::StrCat("is not a known key, must be one of: ", known));
  }
}

}  // namespace sluice
