// The specs of the server's options; see base/option_spec.h.
#pragma once

#include <vector>

#include "base/option_spec.h"
#include "server/common/options.h"

namespace sluice {

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
