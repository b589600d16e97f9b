// Writes a configuration as YAML that LoadYaml reads back.
#pragma once

#include <string>

#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Returns each value with its origin as a comment.
std::string RenderEffectiveConfig(const Config& config, const Origins& origins);

// Returns all options at their defaults, each with its effect, type, unit, range and default. The
// file config/sluice.yaml is this text.
std::string RenderDefaultConfig();

}  // namespace sluice
