// The table of a request's inputs. Validation accepts them, and metadata lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/model/model.h"
#include "proto/inference.pb.h"
#include "server/protocol/tensors/tensors.h"

namespace sluice {

enum class Input {
  kInputIds,
  kInputsEmbeds,
  kInputLengths,
  kTokenTypeIds,
  kTextInput,
  kTextPairInput,
  kCandidateIds,
  kExcludeIds,
};
inline constexpr size_t kInputs = CountEnumerators<Input>();

struct InputInfo {
  Input input;
  std::string_view name;
  std::string_view datatype;   // the datatype in metadata
  std::string_view datatypes;  // all accepted datatypes, as documented
  std::string_view shape;      // as documented
  bool of_prompt;  // a prompt input, which metadata lists; other inputs belong to outputs
};

// Returns the table, in the order of Input.
std::span<const InputInfo> Inputs();

bool Takes(const Model& model, const InputInfo& info);

// The tensors of a message, indexed by Input. Absent ones have a null header.
struct InputTensors {
  InputTensor tensors[kInputs];

  const InputTensor& of(Input input) const { return tensors[static_cast<int>(input)]; }
  bool has(Input input) const { return of(input).header != nullptr; }
};

// Calls FindInputs, and checks that the message has exactly one prompt input. Returns
// InvalidArgument ("input") otherwise.
absl::StatusOr<InputTensors> ReadInputs(const inference::ModelInferRequest& message,
                                        const Model& model);

}  // namespace sluice
