// Changes the structure of JSON in fuzz inputs. Changes of single bytes rarely get past the JSON
// parser.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace sluice::fuzz {

// Returns `input` with some changed nodes in one of its JSON documents, or nullopt if it has no
// document. New nodes may come from `other`. A document is an object or an array that begins the
// input or a line, or that follows its size in eight bytes (safetensors).
std::optional<std::string> MutateJson(std::string_view input, std::string_view other,
                                      std::mt19937_64& random);

}  // namespace sluice::fuzz
