// Helpers for the parts of a tokenizer.json, which are objects that name their type.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "base/json_reader.h"
#include "engine/model/tokenizer/pattern.h"

namespace sluice::tokenize {

// The longest name of a type.
inline constexpr size_t kMaxTypeBytes = 64;
// The longest text of a file that is inserted into texts.
inline constexpr size_t kMaxAffixBytes = 1024;

// Calls `visit` with the type and the fields of `object`. If it is a Sequence, calls it for each
// member of its list `list_key`, in order. Does nothing for null. Errors go to `status`, and name
// `path`.
void VisitMembers(const nlohmann::json* object, const std::string& path, const char* list_key,
                  const std::function<void(const std::string& type, ObjectReader& fields)>& visit,
                  absl::Status* status);

// Reads `{"String": ...}` or `{"Regex": ...}` at `key`; returns nullptr after an error.
std::shared_ptr<const Pattern> ReadPattern(const std::string& key, ObjectReader& fields,
                                           SearchLimit limit = SearchLimit::kOfTexts);

}  // namespace sluice::tokenize
