// Request parameters that are lists. The protocol can carry them only as text: JSON, one level
// deep.
//
// The text is parsed event by event, so memory stays within the limits. Errors are InvalidArgument
// ("parameter") and name the parameter, the entry and the limit; `out` is then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/parameter_table.h"
#include "kernels/sampling.h"
#include "proto/inference.pb.h"

namespace sluice {

// Reads {"17": -1.5, "4": null}: distinct ids in [0, vocab), each with a bias in [-kMaxBias,
// kMaxBias], or with null or "-inf" for a ban.
absl::Status ReadTokenBias(absl::string_view name, const inference::InferParameter& value,
                           int64_t vocab, std::vector<kernels::TokenBias>* out);

// Reads "[1, 2]" or "1,2": at most `most` distinct ids in [0, vocab), which are ascending in `out`.
absl::Status ReadTokenIds(absl::string_view name, const inference::InferParameter& value,
                          int64_t vocab, size_t most, std::vector<int32_t>* out);

// Reads an array of texts if the value begins with '[', or else the value as one text: at most
// `most` texts, of 1 to kMaxStopTextBytes bytes. Protobuf has already checked that they are UTF-8.
absl::Status ReadTexts(absl::string_view name, const inference::InferParameter& value, size_t most,
                       std::vector<std::string>* out);

// Reads [[[0, 12], [12, 30]], ..]: for each row a list of at most kMostSpans spans, which are not
// empty.
absl::Status ReadSpans(absl::string_view name, const inference::InferParameter& value,
                       std::vector<std::vector<TextSpan>>* out);

}  // namespace sluice
