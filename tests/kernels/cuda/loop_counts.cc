#include "tests/kernels/cuda/loop_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/simt/costs.h"
#include "tests/kernels/cuda/loop_cases.h"

namespace sluice::simt {
namespace {

using kernels::cuda::LoopCase;

// Returns the instructions of the busiest warp in a launch of some steps.
WarpCosts CostsOf(const LoopCase& loop, int32_t steps) {
  DeviceLab lab(MakeSimtDevice({.seed = 1, .processors = 132}));
  std::mt19937_64 random(1);
  const CostMeter meter;
  loop.run(lab, random, steps);
  const absl::Status status = lab.Finish();
  EXPECT_TRUE(status.ok()) << loop.code << ": " << status;
  const auto launch =
      std::find_if(meter.launches().begin(), meter.launches().end(),
                   [&](const LaunchCosts& costs) { return costs.kernel == loop.kernel; });
  if (launch != meter.launches().end()) return launch->busiest_warp;
  ADD_FAILURE() << "the case of " << loop.code << " does not launch " << loop.kernel;
  return {};
}

}  // namespace

std::string CountLoops() {
  std::vector<std::string> lines;
  for (const LoopCase& loop : kernels::cuda::LoopCases()) {
    const WarpCosts before = CostsOf(loop, loop.fewest);
    const WarpCosts after = CostsOf(loop, loop.fewest + loop.more);
    const auto more = [&](const char* name, int64_t WarpCosts::*kind) {
      return absl::StrCat(", \"", name, "\": ", after.*kind - before.*kind);
    };
    lines.push_back(
        absl::StrCat(" {\"source\": ", nlohmann::json(loop.source).dump(),
                     ", \"kernel\": ", nlohmann::json(loop.code).dump(),
                     ", \"step\": ", nlohmann::json(loop.step).dump(), ", \"steps\": ", loop.more,
                     more("products", &WarpCosts::products), more("shared", &WarpCosts::shared),
                     more("global", &WarpCosts::global), more("others", &WarpCosts::others), "}"));
  }
  return absl::StrCat("[\n", absl::StrJoin(lines, ",\n"), "\n]\n");
}

}  // namespace sluice::simt
