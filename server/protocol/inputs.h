// The table of a request's inputs: what validation accepts and metadata lists.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "proto/inference.pb.h"
#include "server/protocol/tensors.h"

namespace sluice {

enum class Input {
  kInputIds,
  kInputsEmbeds,
  kInputLengths,
  kTextInput,
  kCandidateIds,
  kExcludeIds,
};
inline constexpr size_t kInputs = 6;

struct InputInfo {
  Input input;
  std::string_view name;
  std::string_view datatype;   // that metadata names
  std::string_view datatypes;  // as documented, with
  std::string_view shape;      // this
  bool of_prompt;              // listed by metadata; the others belong to outputs
};

// In the order of Input.
std::span<const InputInfo> Inputs();

bool Takes(const Model& model, const InputInfo& info);

// Returns the tensors of a message, by Input; absent ones have a null header.
struct InputTensors {
  InputTensor tensors[kInputs];

  const InputTensor& of(Input input) const { return tensors[static_cast<int>(input)]; }
  bool has(Input input) const { return of(input).header != nullptr; }
};

// Calls FindInputs, and checks that exactly one of the inputs that are prompts is present. Returns
// InvalidArgument ("input").
absl::StatusOr<InputTensors> ReadInputs(const inference::ModelInferRequest& message,
                                        const Model& model);

}  // namespace sluice
