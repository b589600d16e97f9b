#include "tests/kernels/cuda/cost_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace sluice::simt {
namespace {

struct Counter {
  const char* name;
  const char* title;
  int goal;  // -1 if it should be low, 1 if it should be high, 0 if it is only reported
  int64_t (*value)(const LaunchCosts& costs);
};

using Costs = LaunchCosts;
constexpr Counter kCounters[] = {
    {"blocks", "blocks", 0, [](const Costs& c) { return c.blocks; }},
    {"working_blocks", "blocks with work", 1, [](const Costs& c) { return c.working_blocks; }},
    {"bytes", "bytes of global memory", -1, [](const Costs& c) { return c.bytes; }},
    {"sectors", "sectors of 32 bytes", -1, [](const Costs& c) { return c.sectors; }},
    {"ideal_sectors", "ideal sectors", 0, [](const Costs& c) { return c.ideal_sectors; }},
    {"width1", "accesses of 1 byte", -1, [](const Costs& c) { return c.widths[0]; }},
    {"width2", "accesses of 2 bytes", -1, [](const Costs& c) { return c.widths[1]; }},
    {"width4", "accesses of 4 bytes", 0, [](const Costs& c) { return c.widths[2]; }},
    {"width8", "accesses of 8 bytes", 0, [](const Costs& c) { return c.widths[3]; }},
    {"width16", "accesses of 16 bytes", 0, [](const Costs& c) { return c.widths[4]; }},
    {"bulk_copies", "bulk copies", 0, [](const Costs& c) { return c.bulk_copies; }},
    {"conflicts", "conflicts of banks", -1, [](const Costs& c) { return c.conflicts; }},
    {"passes", "passes of shared memory", -1, [](const Costs& c) { return c.wavefronts; }},
    {"global_atomics_warp", "global atomics of a warp on one address", -1,
     [](const Costs& c) { return c.global_atomics.worst_in_warp; }},
    {"global_atomics", "global atomics on one address", -1,
     [](const Costs& c) { return c.global_atomics.worst_in_launch; }},
    {"shared_atomics_warp", "shared atomics of a warp on one address", -1,
     [](const Costs& c) { return c.shared_atomics.worst_in_warp; }},
    {"shared_atomics", "shared atomics of a block on one address", -1,
     [](const Costs& c) { return c.shared_atomics.worst_in_launch; }},
    {"products", "matrix products", -1, [](const Costs& c) { return c.products; }},
    {"instructions", "instructions", -1, [](const Costs& c) { return c.instructions; }},
};

int64_t ValueOf(const CostRow& row, const std::string& counter) {
  const auto found = row.counters.find(counter);
  return found == row.counters.end() ? 0 : found->second;
}

const CostRow* Find(const CostTable& table, const std::string& name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.first == name; });
  return found == table.end() ? nullptr : &found->second;
}

// Returns numerator / denominator with two digits, or "-" for 0 / 0.
std::string Ratio(int64_t numerator, int64_t denominator) {
  if (denominator == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f",
                static_cast<double>(numerator) / static_cast<double>(denominator));
  return text;
}

// Returns "in a warp / in all" for two counters.
std::string Atomics(const CostRow& row, const std::string& counter) {
  if (ValueOf(row, counter) == 0) return "-";
  return absl::StrCat(ValueOf(row, counter + "_warp"), " / ", ValueOf(row, counter));
}

std::string Widths(const CostRow& row) {
  std::vector<std::string> widths;
  for (const int width : {1, 2, 4, 8, 16}) {
    const int64_t count = ValueOf(row, absl::StrCat("width", width));
    if (count > 0) widths.push_back(absl::StrCat(width, ": ", count));
  }
  return absl::StrJoin(widths, ", ");
}

constexpr char kIntroduction[] = R"(# Costs of the CUDA kernels

`kernels_cost_test` counts these figures in the emulator, on small shapes like those in a step of a
model, for a device of 132 processors ([gpu.md](gpu.md#costs)). They are counts, not times.

- **blocks with work**: the blocks that write to global memory, out of all launched blocks, and the
  share of the 132 processors that have such a block.
- **sectors over ideal**: the pieces of 32 bytes that the accesses of warps touch, divided by the
  fewest pieces for the same number of bytes. The ideal is 1.
- **conflicts**: the share of the passes of shared memory that are caused by bank conflicts. The
  ideal is 0.
- **atomics**: the most additions to one address, by one instruction of a warp / in all. For shared
  memory, "in all" means by one block.
- **accesses by bytes**: instructions of a warp that access global memory, by bytes of a lane.
- **passes a product**: passes of shared memory per matrix product.
- **instructions a product**: accesses, collectives, barriers and waits of a warp, per matrix
  product. Arithmetic is not counted.

)";

}  // namespace

CostRow MakeCostRow(std::string shape, const LaunchCosts& costs) {
  CostRow row = {std::move(shape), {}};
  for (const Counter& counter : kCounters) {
    const int64_t value = counter.value(costs);
    if (value != 0) row.counters[counter.name] = value;
  }
  return row;
}

absl::StatusOr<CostTable> ReadCostTable(std::string_view json) {
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json file, ParseJson(json, 4));
  absl::Status status;
  CostTable table;
  for (const nlohmann::json& each : file) {
    ObjectReader reader(each, "", &status);
    CostRow row;
    const std::string name = reader.String("name", 200);
    row.shape = reader.String("shape", 200);
    for (const Counter& counter : kCounters) {
      const int64_t value = reader.Integer(counter.name, 0, int64_t{1} << 53, 0);
      if (value != 0) row.counters[counter.name] = value;
    }
    table.emplace_back(name, std::move(row));
  }
  SLUICE_RETURN_IF_ERROR(status);
  return table;
}

std::string WriteCostTable(const CostTable& table) {
  std::vector<std::string> lines;
  for (const auto& [name, row] : table) {
    std::string line = absl::StrCat(" {\"name\": ", nlohmann::json(name).dump(),
                                    ", \"shape\": ", nlohmann::json(row.shape).dump());
    for (const Counter& counter : kCounters) {
      const int64_t value = ValueOf(row, counter.name);
      if (value != 0) absl::StrAppend(&line, ", \"", counter.name, "\": ", value);
    }
    lines.push_back(line + "}");
  }
  return absl::StrCat("[\n", absl::StrJoin(lines, ",\n"), "\n]\n");
}

std::string DescribeCostTable(const CostTable& table) {
  constexpr int64_t kProcessors = 132;
  std::string text = kIntroduction;
  absl::StrAppend(
      &text,
      "| launch | shape | blocks with work | sectors over ideal | conflicts | shared "
      "atomics | global atomics | accesses by bytes | passes a product | instructions a "
      "product |\n",
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : table) {
    const int64_t working = ValueOf(row, "working_blocks");
    const int64_t busy = std::min(working, kProcessors) * 100 / kProcessors;
    const int64_t products = ValueOf(row, "products");
    absl::StrAppend(&text, "| ", name, " | ", row.shape, " | ", working, " of ",
                    ValueOf(row, "blocks"), ", ", busy, " %", " | ",
                    Ratio(ValueOf(row, "sectors"), ValueOf(row, "ideal_sectors")), " | ",
                    Ratio(ValueOf(row, "conflicts"), ValueOf(row, "passes")), " | ");
    absl::StrAppend(&text, Atomics(row, "shared_atomics"), " | ", Atomics(row, "global_atomics"),
                    " | ", Widths(row), " | ",
                    products == 0 ? "-" : Ratio(ValueOf(row, "passes"), products), " | ",
                    Ratio(ValueOf(row, "instructions") - products, products), " |\n");
  }
  return text;
}

CostVerdict Judge(const CostTable& measured, const CostTable& budgets) {
  CostVerdict verdict;
  for (const auto& [name, row] : measured) {
    const CostRow* budget = Find(budgets, name);
    if (budget == nullptr) {
      verdict.errors.push_back(name + ": no budget");
      continue;
    }
    if (budget->shape != row.shape) {
      verdict.errors.push_back(
          absl::StrCat(name, ": the budget is of ", budget->shape, ", not of ", row.shape));
    }
    for (const Counter& counter : kCounters) {
      const int64_t value = ValueOf(row, counter.name), limit = ValueOf(*budget, counter.name);
      if (value == limit) continue;
      const bool worse = counter.goal != 0 && (value > limit) == (counter.goal < 0);
      (worse ? verdict.errors : verdict.hints)
          .push_back(
              absl::StrCat(name, ": ", value, " ", counter.title, ", the budget is ", limit));
    }
  }
  for (const auto& [name, row] : budgets) {
    if (Find(measured, name) == nullptr)
      verdict.errors.push_back(name + ": a budget without a launch");
  }
  return verdict;
}

}  // namespace sluice::simt
