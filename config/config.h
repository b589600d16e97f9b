// Everything that can be configured, from YAML, environment and flags.
//
// Precedence: flag, then environment, then file, then default. The file is strict: an unknown key,
// a wrong type, a duplicate or an out-of-range value is an InvalidArgument that names file, line,
// key and limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/options.h"
#include "server/options.h"

namespace sluice {

struct ModelSpec {
  std::string name;  // [A-Za-z0-9_.-]{1,128}
  std::string path;  // directory, at most 4096 bytes; a file's relative ones start at its directory
  int64_t version = 1;  // [1, 2^31 - 1]; name and version together are unique
};

struct Config {
  std::vector<ModelSpec> models;
  EngineOptions engine;
  CpuOptions cpu;
  ServerOptions server;
};

}  // namespace sluice
