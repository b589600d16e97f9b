// The table of a request's outputs: what validation accepts, replies carry and metadata lists.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/model/model.h"

namespace sluice {

enum class Output {
  kOutputIds,
  kSequenceLength,
  kLogprobs,
  kFinishReason,
  kTextOutput,
  kTopIds,
  kTopLogprobs,
  kLogits,
  kPromptLogprobs,
  kXsaCosSim,
  kXsaProjFrac,
};

struct OutputInfo {
  Output output;
  std::string_view name;
  std::string_view datatype;
  int64_t columns;      // of a default output [n, columns]; -1: any number
  uint32_t mask;        // what the engine must be asked for; see OutputMask
  bool by_default;      // returned where the request names no outputs
  bool from_tokenizer;  // only where the model has one
};

// Defaults first, in the order in which they are returned.
std::span<const OutputInfo> Outputs();

const OutputInfo& InfoOf(Output output);

// nullptr: no such output, or not one of this model.
const OutputInfo* FindOutput(std::string_view name, const Model& model);

inline bool IsDefaultOf(const OutputInfo& info, const Model& model) {
  return info.by_default && (!info.from_tokenizer || model.tokenizer != nullptr);
}

}  // namespace sluice
