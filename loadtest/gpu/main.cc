// Times the kernels and the plans on a GPU; loadtest/gpu_check.sh runs it.
//
//   gpu_bench device|rows|products|draws|plans [--rehearse] [--seconds S]
//
// Prints one JSON object. `device` says what is there; its exit status is 3 where there is nothing.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "loadtest/gpu/bench.h"
#include "loadtest/gpu/open_device.h"
#include "nlohmann/json.hpp"

namespace sluice::gpu {
namespace {

constexpr int kNoDevice = 3;

const std::map<std::string, void (*)(Bench&, Scale)> kParts = {{"rows", TimeRowKernels},
                                                               {"products", TimeProductKernels},
                                                               {"draws", TimeDrawKernels},
                                                               {"plans", TimePlans}};

nlohmann::json ToJson(const DeviceInfo& info) {
  return {{"name", info.name},
          {"architecture", info.architecture},
          {"processors", info.processors},
          {"memory_bytes", info.memory_bytes}};
}

nlohmann::json ToJson(const std::vector<Measurement>& measurements) {
  nlohmann::json all = nlohmann::json::array();
  for (const Measurement& m : measurements) {
    all.push_back({{"part", m.part},
                   {"name", m.name},
                   {"shape", m.shape},
                   {"value", m.value},
                   {"unit", m.unit},
                   {"bytes", m.bytes},
                   {"operations", m.operations},
                   {"tensor_cores", m.tensor_cores}});
  }
  return all;
}

int Usage() {
  std::fputs("usage: gpu_bench device|rows|products|draws|plans [--rehearse] [--seconds S]\n",
             stderr);
  return 2;
}

int Main(int argc, char** argv) {
  if (argc < 2) return Usage();
  const std::string part = argv[1];
  Scale scale = Scale::kGpu;
  double seconds = 0.3;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rehearse") == 0) {
      scale = Scale::kRehearsal;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else {
      return Usage();
    }
  }
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice();
  if (!device.ok()) {
    std::fprintf(stderr, "no device: %s\n", std::string(device.status().message()).c_str());
    return kNoDevice;
  }
  Bench bench(**device, seconds);
  const auto run = kParts.find(part);
  if (run != kParts.end()) {
    run->second(bench, scale);
  } else if (part != "device") {
    return Usage();
  }
  const nlohmann::json report = {{"device", ToJson((*device)->info())},
                                 {"measurements", ToJson(bench.measurements())},
                                 {"problems", bench.missing()}};
  std::puts(report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace sluice::gpu

int main(int argc, char** argv) { return sluice::gpu::Main(argc, argv); }
