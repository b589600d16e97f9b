// The parameters of a request, one table for flags and for JSON lines. Here only forms are judged;
// the ranges are the server's, whose errors are precise.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/inference.pb.h"

namespace sluice::client {

enum class ParameterKind {
  kInteger,
  kUnsigned,
  kReal,
  kDuration,  // suffix us, ms, s, min or h; plain numbers are microseconds
  kSwitch,    // a flag without a value; true or false in JSON
  kIds,       // 1,2,3; a list in JSON
  kBiases,    // 5=-2.5,7=ban; in JSON an object, {"5": -2.5, "7": null}
  kWord,      // one of a few, as it is
  kTexts,     // a flag that may be repeated; a string or a list of strings in JSON
};

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

// `values`: at least one, and only of kTexts more than one. InvalidArgument says what was expected.
absl::Status SetParameter(const ParameterInfo& info, absl::Span<const std::string> values,
                          inference::ModelInferRequest* request);

absl::Status SetParameterFromJson(const ParameterInfo& info, const nlohmann::json& value,
                                  inference::ModelInferRequest* request);

}  // namespace sluice::client
