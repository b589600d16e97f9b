// Makes inference requests from flags and from JSON lines. The client checks only their form. The
// server checks the names of outputs and returns precise errors.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Sets one row: text_input BYTES [1, 1], or input_ids INT32 [1, n].
void SetText(absl::string_view text, inference::ModelInferRequest* request);
void SetIds(absl::Span<const int32_t> ids, inference::ModelInferRequest* request);

// Sets an input of texts, BYTES [n, 1].
void SetTexts(const std::string& name, const std::vector<std::string>& texts,
              inference::ModelInferRequest* request);

// Sets candidate_ids or exclude_ids, INT32 [1, n], replacing any that the request has.
void SetItems(const std::string& name, absl::Span<const int32_t> ids,
              inference::ModelInferRequest* request);

// Sets inputs_embeds FP32 [1, n, width] from a JSON list of n lists of `width` numbers each.
absl::Status SetVectors(const std::string& text, inference::ModelInferRequest* request);

// Sets the text to the rest of `in`, at most 16 MiB, including line breaks. Returns InvalidArgument
// with the reason if there is no valid text.
absl::Status ReadText(std::istream& in, inference::ModelInferRequest* request);

void AddOutput(const std::string& name, inference::ModelInferRequest* request);

// Parses ids such as "1,2,3". Requires at least one.
absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text);

// Reads a JSON object with `text`, `ids` or `inputs_embeds` and, optionally, `text_pair`,
// `candidate_ids`, `exclude_ids`, `id`, `model`, `version`, `outputs` and the names of Parameters()
// (client/parameter.h). Everything else comes from `defaults`. Returns InvalidArgument that names
// the key.
absl::StatusOr<inference::ModelInferRequest> ParseRequestLine(
    const std::string& line, const inference::ModelInferRequest& defaults);

}  // namespace sluice::client
