// The keys of the config classes of transformers, by model_type.
#pragma once

#include <string_view>

namespace sluice {

// Returns whether the config class of the model type, or its base class, has the key. Returns false
// for a model type without a class in transformers, unless every class has the key.
bool IsKeyOfClass(std::string_view model_type, std::string_view key);

// Returns the key that transformers sets if a file has `name`, such as "n_embd" for "hidden_size"
// of "gpt2". Returns an empty text if `name` is not another name of a key.
std::string_view KeyOfAlias(std::string_view model_type, std::string_view name);

}  // namespace sluice
