// Times the kernels and the plans on a GPU; loadtest/gpu_check.sh runs it.
//
//   gpu_bench device                        describes the device
//   gpu_bench table                         resources of the compiled kernels of all cases
//   gpu_bench list [PART]...                the cases of the parts, or all
//   gpu_bench work                          ideal work and launches of each timed case on an H200
//   gpu_bench run CASE...                   times cases, in this order
//   gpu_bench launch CASE                   launches the kernels of a case twice, for a profiler
//   gpu_bench tune [--model FOLDER] [--shape K,N[,flags]]...
// --rehearse selects sizes for the emulator. --seconds S limits each case, or all of `tune`.
//
// Prints one JSON object a line, at once, except `tune`, which prints a table of the library's
// algorithms for the device. `run` prints {"start": CASE} before a case, its measurements, and
// {"end": CASE, "problems": [...]} after it, so that the reader can tell in which case the process
// ended. The exit status is 3 if there is no device.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "loadtest/gpu/cases.h"
#include "loadtest/gpu/open_device.h"
#include "loadtest/gpu/tune.h"
#include "nlohmann/json.hpp"

namespace sluice::gpu {

Case KernelCase(Measurement measurement, std::function<Launch(Bench&)> make) {
  return {.part = measurement.part,
          .id = measurement.Id(),
          .run = [measurement, make = std::move(make)](
                     Bench& bench) { bench.Time(measurement, [&] { return make(bench); }); },
          .records = true,
          .measures = measurement};
}

namespace {

using nlohmann::json;

constexpr int kNoDevice = 3;
// For tests of the driver: faults of the form crash=CASE or hang=CASE, separated by '|', which are
// triggered when the case runs.
constexpr char kFaultsVariable[] = "SLUICE_GPU_BENCH_FAULTS";

// The parts in the order of the cases.
const std::vector<std::pair<std::string, std::vector<Case> (*)(Scale)>> kParts = {
    {"buckets", BucketCases}, {"ceilings", CeilingCases}, {"steps", StepCases},
    {"plans", PlanCases},     {"products", ProductCases}, {"rows", RowCases},
    {"draws", DrawCases}};

struct Arguments {
  std::string verb;
  Scale scale = Scale::kGpu;
  double seconds = 0;  // 0 means the command's default
  std::string model;
  std::vector<DenseShape> shapes;
  std::vector<std::string> names;
};

int Usage() {
  std::fputs(
      "usage: gpu_bench device|table|work|list [PART]...|run CASE...|launch CASE\n"
      "       gpu_bench tune [--model FOLDER] [--shape K,N[,flags]]...\n"
      "       with [--rehearse] [--seconds S]\n",
      stderr);
  return 2;
}

bool Read(int argc, char** argv, Arguments* arguments) {
  if (argc < 2) return false;
  arguments->verb = argv[1];
  const bool tune = arguments->verb == "tune";
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--rehearse") {
      arguments->scale = Scale::kRehearsal;
    } else if (name.substr(0, 2) != "--") {
      arguments->names.push_back(name);
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

void Print(const json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

json ToJson(const Measurement& m) {
  return {{"part", m.part},
          {"name", m.name},
          {"shape", m.shape},
          {"value", m.value},
          {"unit", m.unit},
          {"bytes", m.bytes},
          {"low", m.low},
          {"high", m.high},
          {"sets", m.sets},
          {"operations", m.operations},
          {"tensor_cores", m.tensor_cores},
          {"int8", m.int8}};
}

std::vector<Case> AllCases(Scale scale) {
  std::vector<Case> all;
  for (const auto& [part, make] : kParts) {
    for (Case& each : make(scale)) all.push_back(std::move(each));
  }
  return all;
}

void PrintDevice(const Device& device) {
  const DeviceInfo& info = device.info();
  Print({{"name", info.name},
         {"library", device.DenseLibrary().value_or("")},
         {"architecture", info.architecture},
         {"processors", info.processors},
         {"memory_bytes", info.memory_bytes},
         {"free_bytes", device.FreeMemory()}});
}

// Prints each different launch of the cases once, with the first case that it belongs to.
void PrintKernels(Device& device, const std::vector<Case>& cases) {
  std::set<std::tuple<const void*, int32_t, int32_t>> seen;
  for (const Case& each : cases) {
    if (!each.records) continue;
    std::vector<RecordedLaunch> launches;
    Bench bench(device, &launches);
    each.run(bench);
    for (const auto& [kernel, shape] : launches) {
      if (!seen.emplace(kernel.function, shape.threads, shape.shared_bytes).second) continue;
      json line = {{"kernel", kernel.name},
                   {"case", each.id},
                   {"blocks", shape.blocks},
                   {"threads", shape.threads},
                   {"shared_bytes", shape.shared_bytes}};
      const auto facts = FactsOf(kernel, shape);
      if (!facts.ok()) {
        line["problem"] = facts.status().message();
      } else if (facts->has_value()) {
        const KernelFacts& f = **facts;
        line.update({{"function", f.function},
                     {"registers", f.registers},
                     {"local_bytes", f.local_bytes},
                     {"static_shared_bytes", f.static_shared_bytes},
                     {"blocks_per_processor", f.blocks_per_processor},
                     {"occupancy", f.occupancy}});
      }
      Print(line);
    }
  }
}

void StrikeIfAsked(const std::string& id) {
  const char* const faults = std::getenv(kFaultsVariable);
  if (faults == nullptr) return;
  for (const auto fault : absl::StrSplit(faults, '|')) {
    if (fault == "crash=" + id) std::raise(SIGSEGV);
    while (fault == "hang=" + id) pause();
  }
}

const Case* Find(const std::vector<Case>& cases, const std::string& id) {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.id == id; });
  return found == cases.end() ? nullptr : &*found;
}

int RunCases(Bench& bench, const std::vector<Case>& cases, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const Case* const found = Find(cases, id);
    if (found == nullptr) {
      std::fprintf(stderr, "no case \"%s\"; `gpu_bench list` prints the cases\n", id.c_str());
      return 2;
    }
    Print({{"start", id}});
    StrikeIfAsked(id);
    found->run(bench);
    for (const Measurement& m : bench.measurements()) Print({{"measurement", ToJson(m)}});
    Print({{"end", id}, {"problems", bench.missing()}});
    bench.Clear();
  }
  return 0;
}

int PrintCases(const std::vector<Case>& cases, const std::vector<std::string>& parts) {
  for (const Case& each : cases) {
    const bool wanted =
        parts.empty() || std::find(parts.begin(), parts.end(), each.part) != parts.end();
    if (wanted) Print({{"part", each.part}, {"case", each.id}});
  }
  return 0;
}

// Prints the ideal work of each timed case and its launches on an H200. The device in use does not
// matter. loadtest/gpu/roofline.py reads it.
void PrintWork(Device& device, const std::vector<Case>& cases) {
  const DeviceInfo h200 = {.name = "NVIDIA H200",
                           .architecture = "sm_90",
                           .processors = 132,
                           .memory_bytes = int64_t{141} << 30,
                           .shared_bytes_limit = 227 << 10};
  for (const Case& each : cases) {
    if (!each.measures.has_value()) continue;
    std::vector<RecordedLaunch> launches;
    if (each.records) {
      Bench bench(device, &launches, h200);
      each.run(bench);
    }
    json line = {{"part", each.part},
                 {"case", each.id},
                 {"bytes", each.measures->bytes},
                 {"operations", each.measures->operations},
                 {"tensor_cores", each.measures->tensor_cores},
                 {"int8", each.measures->int8},
                 {"launches", json::array()}};
    for (const auto& [kernel, shape] : launches) {
      line["launches"].push_back(
          {{"kernel", kernel.name}, {"blocks", shape.blocks}, {"threads", shape.threads}});
    }
    Print(line);
  }
}

void PrintTable(Device& device, const Arguments& arguments) {
  constexpr double kSeconds = 40;
  Bench bench(device, 0, 1);
  const auto shapes = ValueOrDie(ShapesToTune(arguments.scale, arguments.model, arguments.shapes));
  const AlgorithmTable table = ValueOrDie(
      Tune(bench, arguments.scale, shapes, arguments.seconds > 0 ? arguments.seconds : kSeconds));
  for (const std::string& what : bench.missing()) std::fprintf(stderr, "%s\n", what.c_str());
  std::fputs(table.Text().c_str(), stdout);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Read(argc, argv, &arguments)) return Usage();
  const std::string& verb = arguments.verb;
  const bool rehearsal = arguments.scale == Scale::kRehearsal;
  if (verb == "list") return PrintCases(AllCases(arguments.scale), arguments.names);
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice();
  if (!device.ok()) {
    std::fprintf(stderr, "no device: %s\n", std::string(device.status().message()).c_str());
    return kNoDevice;
  }
  if (verb == "device") {
    PrintDevice(**device);
  } else if (verb == "table") {
    PrintKernels(**device, AllCases(arguments.scale));
  } else if (verb == "work") {
    PrintWork(**device, AllCases(Scale::kGpu));
  } else if (verb == "tune") {
    PrintTable(**device, arguments);
  } else if (verb == "run" || verb == "launch") {
    // Without time, a bench makes the fewest runs that it can.
    const double seconds = arguments.seconds > 0 ? arguments.seconds : 0.15;
    const bool once = verb == "launch";
    Bench bench(**device, once ? 0 : seconds, once ? 1 : rehearsal ? 2 : 16);
    // Cases own models on the device, so they are destroyed before it.
    const std::vector<Case> cases = AllCases(arguments.scale);
    return RunCases(bench, cases, arguments.names);
  } else {
    return Usage();
  }
  return 0;
}

}  // namespace
}  // namespace sluice::gpu

int main(int argc, char** argv) { return sluice::gpu::Main(argc, argv); }
