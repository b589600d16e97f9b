// Inference requests from flags and from JSON lines. Here only forms are judged; the ranges of
// parameters and the names of outputs are the server's, whose errors are precise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/inference.pb.h"

namespace sluice::client {

enum class ParameterKind { kInteger, kUnsigned, kReal, kDuration };

// A parameter of a request: `name` in JSON lines, --kebab-case as a flag, `protocol_name` on the
// wire.
struct ParameterInfo {
  const char* name;
  const char* protocol_name;
  ParameterKind kind;
  const char* help;

  std::string Flag() const;
};

absl::Span<const ParameterInfo> Parameters();

// Durations take a suffix (us, ms, s, min, h); plain numbers are microseconds. InvalidArgument says
// what was expected.
absl::Status SetParameter(const ParameterInfo& info, absl::string_view text,
                          inference::ModelInferRequest* request);

// One row: text_input BYTES [1, 1], or input_ids INT32 [1, n].
void SetText(absl::string_view text, inference::ModelInferRequest* request);
void SetIds(absl::Span<const int32_t> ids, inference::ModelInferRequest* request);

void AddOutput(const std::string& name, inference::ModelInferRequest* request);

// "1,2,3"; at least one.
absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text);

// A JSON object with `text` or `ids` and, optionally, `id`, `model`, `version`, `outputs` and the
// names of Parameters(); what it leaves out is as in `defaults`. InvalidArgument names the key.
absl::StatusOr<inference::ModelInferRequest> ParseRequestLine(
    const std::string& line, const inference::ModelInferRequest& defaults);

}  // namespace sluice::client
