// The outputs that a request names, or those that it gets if it names none.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"
#include "server/protocol/tensors/outputs.h"

namespace sluice {

// The properties of a request, other than its prompt, that determine its possible outputs.
struct RequestedExtras {
  bool top = false;         // num_top_logprobs
  bool candidates = false;  // candidate_ids
  bool diverse = false;     // diversity
  bool located = false;     // each row has the tokens of one text
  bool similar = false;     // queries and documents
  bool spans = false;       // spans
  bool labels = false;      // labels
};

// Returns the outputs in the order of the reply. Returns InvalidArgument for an output that the
// model does not have, one that needs an absent input or parameter, and for an input or parameter
// whose outputs were not requested.
absl::StatusOr<std::vector<Output>> ReadOutputs(const inference::ModelInferRequest& message,
                                                const NamedModel& named,
                                                const RequestedExtras& extras);

// Returns InvalidArgument with the name of the output and the problem.
absl::Status OutputError(absl::string_view name, absl::string_view problem);

// Returns the masks of the outputs, joined by "or".
uint32_t MaskOf(const std::vector<Output>& outputs);

}  // namespace sluice
