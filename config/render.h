// Writes a configuration as YAML that LoadYaml reads back.
#pragma once

#include <string>

#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Returns each value with its origin as a comment. Leaves out options for tests that are not set.
std::string RenderEffectiveConfig(const Config& config, const Origins& origins);

// Returns the basic options at their defaults, each with a one-sentence description. The file
// config/sluice.yaml is this text.
std::string RenderDefaultConfig();

}  // namespace sluice
