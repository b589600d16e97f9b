// The flags of request parameters, made from the table in engine/parameter_table.h.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// The values of the flags, parallel to Parameters() (client/parameter.h); empty if not given.
using ParameterFlags = std::vector<std::vector<std::string>>;

// Adds the flags of the parameters of these names, or of all if there are none. `flags` outlives
// the command.
void AddParameterFlags(std::initializer_list<std::string_view> names, ParameterFlags* flags,
                       CLI::App* command);

// Sets the parameters whose flags were given. Returns InvalidArgument that names the flag.
absl::Status SetParameters(const ParameterFlags& flags, inference::ModelInferRequest* request);

}  // namespace sluice::client
