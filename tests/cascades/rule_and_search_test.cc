// The daemon's rule for engine.attention.variant: auto (SelectAttention) takes the variant that is
// quickest by the search of this library and by measurements.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "cascades/attention_variants.h"
#include "cascades/cascade_of.h"
#include "engine/cpu/select_attention.h"
#include "nlohmann/json.hpp"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using Kind = AttentionVariant::Kind;
using nlohmann::json;

// A kind other than one_pass must be quicker by a tenth.
Kind Quickest(const std::map<Kind, double>& seconds) {
  const auto of = [&](Kind kind) {
    const auto found = seconds.find(kind);
    return found == seconds.end() ? std::numeric_limits<double>::infinity() : found->second;
  };
  const Kind other = of(Kind::kSplit) < of(Kind::kTwoPass) ? Kind::kSplit : Kind::kTwoPass;
  return of(other) < 0.9 * of(Kind::kOnePass) ? other : Kind::kOnePass;
}

void Take(Kind kind, double seconds, std::map<Kind, double>* least) {
  const auto [known, added] = least->emplace(kind, seconds);
  if (!added) known->second = std::min(known->second, seconds);
}

// A decode step of one sequence of `context` tokens.
Kind Search(const ModelConfig& config, int64_t context, const einsum::DeviceDescription& device) {
  const AttentionWork work = {.context = context,
                              .kv_heads = config.kv_heads,
                              .group = config.heads / config.kv_heads,
                              .head_dim = config.head_dim};
  const auto found =
      EstimateAttention({.causal = true, .kv = KvPlaceOnCpu(config)}, work, device).value();
  std::map<Kind, double> seconds;
  for (const AttentionEstimate& each : found.variants) {
    Take(each.variant.kind, each.cost.seconds, &seconds);
  }
  return Quickest(seconds);
}

ModelConfig ConfigOf(int64_t kv_heads, int64_t group, int64_t context) {
  ModelConfig config = TinyConfig(1);
  config.kv_heads = kv_heads;
  config.heads = kv_heads * group;
  config.head_dim = 64;
  config.max_positions = context;
  return config;
}

TEST(RuleAndSearch, AgreeWithTheMeasuredTable) {
  const json table = json::parse(
      std::ifstream(std::string(SLUICE_SOURCE_DIR) + "/loadtest/results/attention_orders.json"));
  std::map<int, einsum::DeviceDescription> devices;
  for (const json& device : table["devices"]) {
    devices[device["workers"]] = einsum::ReadDeviceDescription(device.dump()).value();
  }
  ASSERT_GT(table["cells"].size(), 50u);
  for (const json& cell : table["cells"]) {
    const int threads = cell["threads"];
    const int64_t context = cell["context"];
    // The cells' sequences have one KV head each: they are as many work items as heads.
    const ModelConfig config = ConfigOf(cell["sequences"], cell["group"], context);
    SCOPED_TRACE(absl::StrCat(threads, " threads, context ", context, ", ", config.kv_heads,
                              " KV heads, ", config.heads, " heads"));
    const Kind rule = SelectAttention({}, config, threads).variant.kind;
    EXPECT_EQ(NameOf(Search(config, context, devices.at(threads))), NameOf(rule));
    std::map<Kind, double> measured;
    for (const auto& [order, times] : cell["orders"].items()) {
      Take(ParseAttentionVariant(order).value().kind, times["seconds"], &measured);
    }
    EXPECT_EQ(NameOf(Quickest(measured)), NameOf(rule));
  }
}

// A processor whose cores have a cache each, and a memory that serves all of them.
einsum::DeviceDescription Processor(int32_t workers) {
  return {.name = "processor",
          .workers = workers,
          .flops_per_second = 1e11,
          .exponentials_per_second = 4e9,
          .launch_seconds = 1e-6,
          .levels = {{.name = "L2", .bytes = 1 << 20, .bytes_per_second = 1e11},
                     {.name = "memory",
                      .bytes = 1e15,
                      .bytes_per_second = 1.2e10 * workers,
                      .shared = true,
                      .worker_bytes_per_second = 1.2e10}}};
}

TEST(RuleAndSearch, AgreeForHeadsThatDoNotFillTheThreads) {
  for (const int threads : {1, 2, 3, 4, 8, 16, 64}) {
    for (const int64_t kv_heads : {1, 2, 3, 4, 8, 12, 32}) {
      for (const int64_t context : {512, 4096, 131072}) {
        const ModelConfig config = ConfigOf(kv_heads, 4, context);
        EXPECT_EQ(NameOf(Search(config, context, Processor(threads))),
                  NameOf(SelectAttention({}, config, threads).variant.kind))
            << threads << " threads, " << kv_heads << " KV heads, context " << context;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
