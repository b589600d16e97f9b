// Times the kernels and the plans on a GPU; loadtest/gpu_check.sh runs it.
//
//   gpu_bench device|rows|products|draws|plans [--rehearse] [--seconds S]
//   gpu_bench tune [--rehearse] [--seconds S] [--model FOLDER] [--shape K,N[,flags]]...
//
// Prints one JSON object. `device` describes the device; the exit status is 3 if there is none.
// `tune` prints a table of the library's algorithms for the device, and spends S seconds in all.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "loadtest/gpu/bench.h"
#include "loadtest/gpu/open_device.h"
#include "loadtest/gpu/tune.h"
#include "nlohmann/json.hpp"

namespace sluice::gpu {
namespace {

constexpr int kNoDevice = 3;

const std::map<std::string, void (*)(Bench&, Scale)> kParts = {{"rows", TimeRowKernels},
                                                               {"products", TimeProductKernels},
                                                               {"draws", TimeDrawKernels},
                                                               {"plans", TimePlans}};

nlohmann::json ToJson(const Device& device) {
  const DeviceInfo& info = device.info();
  return {{"name", info.name},
          {"library", device.DenseLibrary().value_or("")},
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
  std::fputs(
      "usage: gpu_bench device|rows|products|draws|plans [--rehearse] [--seconds S]\n"
      "       gpu_bench tune [--rehearse] [--seconds S] [--model FOLDER] [--shape "
      "K,N[,flags]]...\n",
      stderr);
  return 2;
}

struct Arguments {
  std::string part;
  Scale scale = Scale::kGpu;
  double seconds = 0;  // 0 means the part's own default
  std::string model;
  std::vector<DenseShape> shapes;
};

bool Read(int argc, char** argv, Arguments* arguments) {
  if (argc < 2) return false;
  arguments->part = argv[1];
  const bool tune = arguments->part == "tune";
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--rehearse") {
      arguments->scale = Scale::kRehearsal;
    } else if (i + 1 == argc) {
      return false;
    } else if (name == "--seconds") {
      arguments->seconds = std::atof(argv[++i]);
    } else if (name == "--model" && tune) {
      arguments->model = argv[++i];
    } else if (name == "--shape" && tune) {
      arguments->shapes.push_back(ValueOrDie(ParseShape(argv[++i])));
    } else {
      return false;
    }
  }
  return true;
}

void PrintTable(Device& device, const Arguments& arguments) {
  constexpr double kSeconds = 40;
  Bench bench(device, 0);
  const auto shapes = ValueOrDie(ShapesToTune(arguments.scale, arguments.model, arguments.shapes));
  const AlgorithmTable table = ValueOrDie(
      Tune(bench, arguments.scale, shapes, arguments.seconds > 0 ? arguments.seconds : kSeconds));
  for (const std::string& what : bench.missing()) std::fprintf(stderr, "%s\n", what.c_str());
  std::fputs(table.Text().c_str(), stdout);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Read(argc, argv, &arguments)) return Usage();
  const std::string& part = arguments.part;
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice();
  if (!device.ok()) {
    std::fprintf(stderr, "no device: %s\n", std::string(device.status().message()).c_str());
    return kNoDevice;
  }
  if (part == "tune") {
    PrintTable(**device, arguments);
    return 0;
  }
  Bench bench(**device, arguments.seconds > 0 ? arguments.seconds : 0.3);
  const auto run = kParts.find(part);
  if (run != kParts.end()) {
    run->second(bench, arguments.scale);
  } else if (part != "device") {
    return Usage();
  }
  const nlohmann::json report = {{"device", ToJson(**device)},
                                 {"measurements", ToJson(bench.measurements())},
                                 {"problems", bench.missing()}};
  std::puts(report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace sluice::gpu

int main(int argc, char** argv) { return sluice::gpu::Main(argc, argv); }
