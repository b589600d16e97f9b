#include "server/protocol/request/requested_outputs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/request.h"
#include "server/common/status.h"
#include "server/protocol/parameters/parameter_value.h"
#include "server/protocol/tensors/tensors.h"

namespace sluice {
namespace {

std::string NamesOf(const NamedModel& named) {
  std::string names;
  for (const OutputInfo& info : Outputs()) {
    if (!Has(named, info)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    absl::string_view(info.name.data(), info.name.size()));
  }
  return names;
}

bool IsTop(const OutputInfo& info) { return (info.mask & kOutputTopCandidates) != 0; }

absl::Status CheckNeeds(const OutputInfo& info, absl::string_view name,
                        const RequestedExtras& extras) {
  if (IsTop(info) && !extras.top)
    return OutputError(name, "needs the parameter num_top_logprobs, at least 1");
  if ((info.mask & kOutputCandidates) != 0 && !extras.candidates) {
    return OutputError(name, "needs the input candidate_ids");
  }
  if (info.output == Output::kTokenOffsets && !extras.located) {
    return OutputError(name, "needs text_input without text_pair_input");
  }
  if (info.output == Output::kMaxSim && !extras.similar) {
    return OutputError(name, "needs text_input for queries and text_pair_input for documents");
  }
  if (extras.similar && info.output != Output::kMaxSim) {
    return OutputError(name, "cannot be combined with maxsim; request them in two calls");
  }
  if ((info.mask & kOutputSpans) != 0 && !extras.spans) {
    return OutputError(name, "needs the parameter spans");
  }
  const bool extracted = (info.mask & kOutputExtraction) != 0;
  if (extracted && !extras.labels) return OutputError(name, "needs the parameter labels");
  if (!extracted && extras.labels) {
    return OutputError(name,
                       "cannot be combined with the parameter labels; request it in another call");
  }
  return absl::OkStatus();
}

// Returns the outputs of a request that names no outputs.
std::vector<Output> DefaultOutputs(const NamedModel& named, const RequestedExtras& extras) {
  if (extras.similar) return {Output::kMaxSim};
  std::vector<Output> outputs;
  for (const OutputInfo& info : Outputs()) {
    const bool top =
        extras.top && (info.output == Output::kTopIds || info.output == Output::kTopLogprobs);
    const bool candidates =
        extras.candidates && (info.output == Output::kCandidateScores ||
                              (extras.diverse && info.output == Output::kCandidateOrder));
    if (info.output == Output::kTokenOffsets && !extras.located) continue;
    const bool spans = extras.spans && (info.mask & kOutputSpans) != 0;
    if (extras.labels) {
      if (Has(named, info) && (info.mask & kOutputExtraction) != 0) outputs.push_back(info.output);
      continue;
    }
    if (IsDefaultOf(info, named) || (Has(named, info) && spans) ||
        (Has(named, info) && (top || candidates))) {
      outputs.push_back(info.output);
    }
  }
  return outputs;
}

// Returns the error for an output that the model does not have.
absl::Status MissingOutput(const std::string& name, const NamedModel& named) {
  if (named.has_head) {
    return OutputError(name,
                       absl::StrCat("is missing, because the adapter has a classifier in ",
                                    "place of the model's outputs. Request one of ", NamesOf(named),
                                    ", or name the model or another adapter"));
  }
  if (named.classifier.labels > 0 && name == InfoOf(Output::kEmbedding).name) {
    return OutputError(
        name, absl::StrCat("is missing, because this model is a classifier or reranker, whose "
                           "states are not made to be compared. Use another model, set "
                           "sluice.embedding in its config.json, or request one of ",
                           NamesOf(named)));
  }
  return OutputError(name, absl::StrCat("is unknown to this model, which has ", NamesOf(named)));
}

}  // namespace

absl::Status OutputError(absl::string_view name, absl::string_view problem) {
  return ReasonError(Reason::kOutput, absl::StrCat("output ", Printable(name), " ", problem));
}

absl::StatusOr<std::vector<Output>> ReadOutputs(const inference::ModelInferRequest& message,
                                                const NamedModel& named,
                                                const RequestedExtras& extras) {
  std::vector<Output> outputs;
  for (const auto& requested : message.outputs()) {
    const OutputInfo* info = FindOutput(requested.name(), named);
    if (info == nullptr) return MissingOutput(requested.name(), named);
    for (const auto& [name, unused] : requested.parameters()) {
      if (name == "binary_data") continue;  // from KServe's clients; outputs are always raw
      return OutputError(requested.name(), absl::StrCat("has the unknown parameter ",
                                                        Printable(name), "; remove it"));
    }
    if (std::count(outputs.begin(), outputs.end(), info->output) != 0) {
      return OutputError(requested.name(), "appears twice");
    }
    SLUICE_RETURN_IF_ERROR(CheckNeeds(*info, requested.name(), extras));
    outputs.push_back(info->output);
  }
  if (outputs.empty()) outputs = DefaultOutputs(named, extras);
  const bool extracts = (MaskOf(outputs) & kOutputExtraction) != 0;
  if (extras.labels && !extracts) {
    return ParameterError("labels", "is refused: the model does not extract parts of texts");
  }
  if (extracts && !extras.labels) {
    return ParameterError("labels", "is missing; give the labels of the parts to find");
  }
  if (extras.spans && (MaskOf(outputs) & kOutputSpans) == 0) {
    return ParameterError("spans", "requires the output span_embeddings; it was not requested");
  }
  if (extras.candidates && (MaskOf(outputs) & kOutputCandidates) == 0) {
    return InputError(
        "candidate_ids",
        "requires the output candidate_scores or candidate_order; neither was requested");
  }
  return outputs;
}

uint32_t MaskOf(const std::vector<Output>& outputs) {
  uint32_t mask = 0;
  for (const Output output : outputs) mask |= InfoOf(output).mask;
  return mask;
}

}  // namespace sluice
