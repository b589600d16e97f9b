// What the parts of a tokenizer.json have in common: objects that name their type.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "base/json_reader.h"
#include "engine/model/tokenizer/pattern.h"

namespace sluice::tokenize {

// The name of a kind of part.
inline constexpr size_t kMaxTypeBytes = 64;
// A text in a file that is put into texts.
inline constexpr size_t kMaxAffixBytes = 1024;

// Calls `visit` with the type and the fields of `object`, or, where that is a Sequence, of each step
// in its list `list_key`, in order. null: no call. Errors go to `status`, and name `path`.
void VisitSteps(const nlohmann::json* object, const std::string& path, const char* list_key,
                const std::function<void(const std::string& type, ObjectReader& fields)>& visit,
                absl::Status* status);

// `{"String": ...}` or `{"Regex": ...}` at `key`; nullptr after an error.
std::shared_ptr<const Pattern> ReadPattern(const std::string& key, ObjectReader& fields);

}  // namespace sluice::tokenize
