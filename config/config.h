// Everything that can be configured, from YAML, environment and flags.
//
// Precedence: flag, then environment, then file, then default. The file is strict: an unknown key,
// a wrong type, a duplicate or an out-of-range value is an InvalidArgument that names file, line,
// key and limit.
#pragma once

#include <string>
#include <vector>

#include "engine/device_options.h"
#include "engine/options.h"
#include "server/common/options.h"

namespace sluice {

struct Config {
  std::vector<ModelSpec> models;
  std::string model_repository{};  // the directory; see ModelRepository
  DeviceChoice device;
  EngineOptions engine;
  CpuOptions cpu;
  CudaOptions cuda;
  ServerOptions server;
};

}  // namespace sluice
