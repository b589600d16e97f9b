// Times the orders in which the CPU's attention may read its keys, and compares them with the
// estimates of the cost model that chooses one.
//
//   attention_orders --rounds 9 --out loadtest/results/attention_orders
//
// writes attention_orders.json and .md. A cell is a decode step: a number of sequences with the
// same context and one query row each. The orders of a cell alternate; figures are medians.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/ceil_div.h"
#include "base/check.h"
#include "cascades/attention_variants.h"
#include "cascades/device_probe.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/memory.h"
#include "loadtest/bench/kernels/roofline.h"
#include "nlohmann/json.hpp"

namespace sluice::kernels {
namespace {

constexpr int32_t kHeadDim = 64;
// Two orders count as different if their times differ by more than this share.
constexpr double kSameWithin = 0.05;

struct Cell {
  int threads;
  int32_t context, sequences, kv_heads, group;

  size_t kv_floats() const {
    return static_cast<size_t>(int64_t{context} * sequences * kv_heads * kHeadDim);
  }
};

// Returns the value at quantile `share` of the values.
double QuantileOf(std::vector<double> values, double share) {
  const auto at = values.begin() +
                  static_cast<int64_t>(share * static_cast<double>(std::ssize(values) - 1) + 0.5);
  std::ranges::nth_element(values, at);
  return *at;
}

struct Contender {
  std::string name;
  AttentionChoice choice;
  std::vector<double> seconds = {};  // measured, by round
  double estimate = 0;

  double median() const { return QuantileOf(seconds, 0.5); }
};

// Returns the orders that differ for the cell. A split needs several segments, and memory for the
// records of all sequences.
std::vector<Contender> Contenders(const Cell& cell) {
  std::vector<Contender> contenders = {{"two_pass", {AttentionOrder::kTwoPass}},
                                       {"one_pass", {AttentionOrder::kOnePass}}};
  const AttentionSizes sizes = {cell.kv_heads * cell.group, cell.kv_heads, kHeadDim, cell.context,
                                cell.threads};
  const int64_t segments = CeilDiv(cell.context, kSegmentTokens);
  const int64_t records = segments * cell.sequences * cell.kv_heads * cell.group;
  for (const int32_t parts : {2, 8}) {
    const AttentionChoice choice = {AttentionOrder::kSplit, parts};
    if (parts > segments || records > AttentionSchedule::MaxRecords(choice, sizes)) continue;
    contenders.push_back({absl::StrCat("split:", parts), choice});
  }
  if (cell.threads > 1 && segments > 1)
    contenders.push_back({"split:auto", {AttentionOrder::kBalanced}});
  return contenders;
}

struct FreeFloats {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float, FreeFloats>;

// Returns memory filled cheaply with values that are neither 0 nor equal.
Floats MakeFloats(size_t count) {
  Floats floats(static_cast<float*>(AllocateMemory(static_cast<int64_t>(count * sizeof(float)))));
  SLUICE_CHECK(floats != nullptr);
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    floats.get()[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return floats;
}

void MeasureCell(const Cell& cell, const float* k, const float* v, int rounds, ThreadPool* pool,
                 std::vector<Contender>* contenders) {
  const Context context = {BestProfile(), pool};
  const int32_t q_heads = cell.kv_heads * cell.group, pages_each = cell.context / kPageTokens;
  const AttentionSizes sizes = {q_heads, cell.kv_heads, kHeadDim, cell.context, cell.threads};
  std::vector<int32_t> rows(static_cast<size_t>(cell.sequences));
  std::vector<int32_t> pages(static_cast<size_t>(cell.sequences * pages_each));
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<AttentionSequence> sequences;
  for (int32_t i = 0; i < cell.sequences; ++i) {
    sequences.push_back({cell.context - 1, 1, &rows[i], &pages[i * pages_each]});
  }
  const size_t row_floats = rows.size() * static_cast<size_t>(q_heads) * kHeadDim;
  const Floats q = MakeFloats(row_floats), out = MakeFloats(row_floats);
  const KvLayer kv = {const_cast<float*>(k), const_cast<float*>(v), cell.kv_heads, kHeadDim};
  std::vector<Floats> scratch;
  for (const Contender& contender : *contenders) {
    scratch.push_back(MakeFloats(static_cast<size_t>(
        std::max<int64_t>(1, AttentionScratchFloats(contender.choice, sizes)))));
  }
  std::vector<Series> series(contenders->size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < contenders->size(); ++i) {
      const AttentionArgs args = {.q = q.get(),
                                  .out = out.get(),
                                  .q_heads = q_heads,
                                  .scale = 0.125f,
                                  .causal = true,
                                  .xsa = XsaForm::kOff,
                                  .xsa_eps = 1e-6f,
                                  .xsa_gate = nullptr,
                                  .cos_sim = nullptr,
                                  .proj_frac = nullptr,
                                  .choice = (*contenders)[i].choice};
      Measure(context, series[i],
              [&] { Attention(context, args, kv, sequences, cell.context, scratch[i].get()); });
    }
  }
  for (size_t i = 0; i < contenders->size(); ++i) {
    (*contenders)[i].seconds.assign(series[i].seconds().begin(), series[i].seconds().end());
  }
}

// The test for whether two orders differ: by their medians, or by whether one takes longer in three
// rounds of four, which is robust against noise in a few rounds.
enum class Told { kByMedians, kInMostRounds };

// Returns the time of `a` divided by the time of `b`, or 1 if they do not differ by more than
// kSameWithin. The ratio is of the medians or, with kInMostRounds, the median over the rounds.
double Difference(const Contender& a, const Contender& b, Told told) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  const double medians = a.median() / b.median();
  const double least = told == Told::kByMedians ? medians : QuantileOf(ratios, 0.25);
  const double most = told == Told::kByMedians ? medians : QuantileOf(ratios, 0.75);
  const bool differ = least > 1 + kSameWithin || most < 1 / (1 + kSameWithin);
  if (!differ) return 1;
  return told == Told::kByMedians ? medians : QuantileOf(ratios, 0.5);
}

// The pairs of orders of all cells that differ in time, and the pairs with wrongly ordered
// estimates.
struct Agreement {
  Told told;
  int64_t pairs = 0, right = 0;
  std::vector<std::string> misses = {};

  double share() const {
    return pairs == 0 ? 1 : static_cast<double>(right) / static_cast<double>(pairs);
  }

  void Add(const Cell& cell, const std::vector<Contender>& contenders) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      for (size_t j = i + 1; j < contenders.size(); ++j) {
        const Contender &a = contenders[i], &b = contenders[j];
        const double ratio = Difference(a, b, told);
        if (ratio == 1) continue;
        ++pairs;
        if ((ratio < 1) == (a.estimate < b.estimate)) {
          ++right;
          continue;
        }
        misses.push_back(absl::StrFormat("| %d | %d | %d | %d | %s, %s | %.2f | %.2f |",
                                         cell.threads, cell.context, cell.sequences, cell.group,
                                         a.name, b.name, ratio, a.estimate / b.estimate));
      }
    }
  }
};

// Returns the estimate of an order, or nullopt if it has none.
std::optional<double> SecondsOf(const AttentionEstimates& estimates, const std::string& name) {
  for (const AttentionEstimate& estimate : estimates.variants) {
    if (AttentionVariantName(estimate.variant) == name) return estimate.cost.seconds;
  }
  return std::nullopt;
}

// Returns whether the shared levels give all workers more on this device than on the other.
bool IsQuicker(const einsum::DeviceDescription& device, const einsum::DeviceDescription& other) {
  const auto shared = [](const einsum::DeviceDescription& each) {
    double sum = 0;
    for (const auto& level : each.levels) sum += level.shared ? level.bytes_per_second : 0;
    return sum;
  };
  return shared(device) > shared(other);
}

// Adds the estimates of the cell's orders. If other sequences keep all threads busy, split:auto
// runs in one pass. It then has no estimate of its own and is left out.
void EstimateCell(const Cell& cell, const einsum::DeviceDescription& device,
                  std::vector<Contender>* contenders) {
  const AttentionWork work = {
      .sequences = cell.sequences,
      .tokens = 1,
      .context = cell.context,
      .kv_heads = cell.kv_heads,
      .group = cell.group,
      .head_dim = kHeadDim,
      .resident_bytes = 2.0 * sizeof(float) * static_cast<double>(cell.kv_floats())};
  const AttentionEstimates estimates = EstimateAttention({.scale = 0.125}, work, device, 8).value();
  std::erase_if(*contenders, [&](const Contender& contender) {
    return !SecondsOf(estimates, contender.name).has_value();
  });
  for (Contender& contender : *contenders) {
    contender.estimate = *SecondsOf(estimates, contender.name);
  }
}

struct MeasuredCell {
  Cell cell;
  std::vector<Contender> contenders;
};

// Measures all cells on `threads` threads and estimates them. The cores of a virtual machine may
// temporarily share one core of the host, so the device is probed before each cell. The estimates
// use the fastest of all probes, which is returned.
einsum::DeviceDescription MeasureCells(int threads, const float* k, const float* v,
                                       size_t max_floats, int rounds,
                                       std::vector<MeasuredCell>* measured) {
  ThreadPool pool(threads);
  einsum::DeviceDescription device = ProbeDevice({BestProfile(), &pool});
  const size_t first = measured->size();
  for (const int32_t context : {64, 512, 2048, 8192, 32768, 131072}) {
    for (const int32_t sequences : {1, 4, 16, 64}) {
      for (const int32_t group : {1, 8}) {
        const Cell cell = {threads, context, sequences, 1, group};
        if (cell.kv_floats() > max_floats) continue;
        const einsum::DeviceDescription again = ProbeDevice({BestProfile(), &pool});
        if (IsQuicker(again, device)) device = again;
        measured->push_back({cell, Contenders(cell)});
        MeasureCell(cell, k, v, rounds, &pool, &measured->back().contenders);
        std::cerr << absl::StrFormat("%d threads, context %d, %d sequences, %d query heads\n",
                                     threads, context, sequences, group);
      }
    }
  }
  for (MeasuredCell& each : std::span(*measured).subspan(first)) {
    EstimateCell(each.cell, device, &each.contenders);
  }
  return device;
}

int RunAll(int rounds, int64_t max_mib, const std::string& out) {
  Agreement agreement = {Told::kInMostRounds}, by_medians = {Told::kByMedians};
  nlohmann::json cells = nlohmann::json::array();
  std::string table =
      "| threads | context | sequences | query heads | order | measured us | estimated us |\n"
      "|---|---|---|---|---|---|---|\n";
  const int64_t max_floats = max_mib * (1 << 20) / 8;  // of keys, and as many of values
  const Floats k = MakeFloats(static_cast<size_t>(max_floats));
  const Floats v = MakeFloats(static_cast<size_t>(max_floats));
  nlohmann::json devices = nlohmann::json::array();
  std::vector<MeasuredCell> measured;
  for (const int threads : {1, 2}) {
    const einsum::DeviceDescription device =
        MeasureCells(threads, k.get(), v.get(), static_cast<size_t>(max_floats), rounds, &measured);
    devices.push_back(nlohmann::json::parse(einsum::DeviceDescriptionJson(device)));
  }
  for (const auto& [cell, contenders] : measured) {
    nlohmann::json orders = nlohmann::json::object();
    for (const Contender& contender : contenders) {
      orders[contender.name] = {{"seconds", contender.median()}, {"estimate", contender.estimate}};
      absl::StrAppendFormat(&table, "| %d | %d | %d | %d | %s | %.1f | %.1f |\n", cell.threads,
                            cell.context, cell.sequences, cell.group, contender.name,
                            contender.median() * 1e6, contender.estimate * 1e6);
    }
    agreement.Add(cell, contenders);
    by_medians.Add(cell, contenders);
    cells.push_back({{"threads", cell.threads},
                     {"context", cell.context},
                     {"sequences", cell.sequences},
                     {"group", cell.group},
                     {"orders", orders}});
  }
  const std::string summary = absl::StrFormat(
      "In %d pairs of orders, one takes longer by more than %.0f %% in three rounds of four.\n"
      "The cost model orders %d of them as measured: %.1f %%. In %d pairs the medians differ by as "
      "much;\nit orders %d of them as measured: %.1f %%.\n",
      agreement.pairs, 100 * kSameWithin, agreement.right, 100 * agreement.share(),
      by_medians.pairs, by_medians.right, 100 * by_medians.share());
  std::cout << summary;
  std::ofstream(out + ".json") << nlohmann::json{{"head_dim", kHeadDim},
                                                 {"rounds", rounds},
                                                 {"profile", ProfileName(BestProfile())},
                                                 {"devices", devices},
                                                 {"pairs", agreement.pairs},
                                                 {"right", agreement.right},
                                                 {"pairs_by_medians", by_medians.pairs},
                                                 {"right_by_medians", by_medians.right},
                                                 {"cells", cells}}
                                      .dump(1)
                               << "\n";
  std::ofstream md(out + ".md");
  md << "# The orders of attention, measured and estimated\n\n"
     << "Written by `attention_orders --rounds " << rounds << "`: decode steps with one KV head of "
     << kHeadDim << " features,\nprofile `" << ProfileName(BestProfile())
     << "`. The orders of a cell are timed alternately, and figures are\nmedians. All orders give "
        "the same bits.\n\n"
     << summary << "\n## Pairs that are ordered wrongly\n\nThose whose medians differ:\n\n"
     << "| threads | context | sequences | query heads | orders | measured ratio | estimated ratio "
        "|\n|---|---|---|---|---|---|---|\n";
  for (const std::string& miss : by_medians.misses) md << miss << "\n";
  md << "\n## All cells\n\n" << table;
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) {
  CLI::App app("Compares the orders of the CPU's attention with the cost model's estimates.");
  int rounds = 9;
  int64_t max_mib = 4096;
  std::string out = "attention_orders";
  app.add_option("--rounds", rounds, "Alternating measurements of a cell.")
      ->check(CLI::Range(1, 1000));
  app.add_option("--max-mib", max_mib, "The most MiB of keys and values; larger cells are skipped.")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--out", out, "The path of the results, without .json and .md.");
  CLI11_PARSE(app, argc, argv);
  return sluice::kernels::RunAll(rounds, max_mib, out);
}
