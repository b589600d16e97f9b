// The specs of the server's options; see base/option_spec.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/option_spec.h"
#include "server/common/options.h"

namespace sluice {

// A kind of option value: the drafted tokens of a model. "none", "ngram", or "draft=NAME tokens=8
// sequences=1", separated by spaces, of which each may be left out.
struct SpeculationValue {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, SpeculationOptions* value) const;
  std::string Format(const SpeculationOptions& value) const;

  // Sets one of the named values. Returns InvalidArgument with the expected values.
  static absl::Status Set(absl::string_view name, absl::string_view value,
                          SpeculationOptions* options);
};

template <>
const std::vector<OptionSpec<ModelSpec>>& OptionSpecs<ModelSpec>();
template <>
const std::vector<OptionSpec<MemoryOptions>>& OptionSpecs<MemoryOptions>();
template <>
const std::vector<OptionSpec<ConnectionOptions>>& OptionSpecs<ConnectionOptions>();
template <>
const std::vector<OptionSpec<GrpcOptions>>& OptionSpecs<GrpcOptions>();
template <>
const std::vector<OptionSpec<AdminOptions>>& OptionSpecs<AdminOptions>();
template <>
const std::vector<OptionSpec<TlsOptions>>& OptionSpecs<TlsOptions>();
template <>
const std::vector<OptionSpec<AuthOptions>>& OptionSpecs<AuthOptions>();
template <>
const std::vector<OptionSpec<RateOptions>>& OptionSpecs<RateOptions>();
template <>
const std::vector<OptionSpec<SecretsOptions>>& OptionSpecs<SecretsOptions>();
template <>
const std::vector<OptionSpec<MetricsOptions>>& OptionSpecs<MetricsOptions>();
template <>
const std::vector<OptionSpec<HttpOptions>>& OptionSpecs<HttpOptions>();
template <>
const std::vector<OptionSpec<LogOptions>>& OptionSpecs<LogOptions>();
template <>
const std::vector<OptionSpec<LifecycleOptions>>& OptionSpecs<LifecycleOptions>();
template <>
const std::vector<OptionSpec<ServerOptions>>& OptionSpecs<ServerOptions>();

}  // namespace sluice
