// The table of the kernels' costs (kernels/simt/costs.h): its file of budgets, its page, and the
// comparison of costs with budgets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/simt/costs.h"

namespace sluice::simt {

// The counters of a launch by name, and the shape of its operands. Counters that are 0 are absent.
struct CostRow {
  std::string shape;
  std::map<std::string, int64_t> counters;

  bool operator==(const CostRow&) const = default;
};
using CostTable = std::vector<std::pair<std::string, CostRow>>;  // by the name of the row

CostRow MakeCostRow(std::string shape, const LaunchCosts& costs);

absl::StatusOr<CostTable> ReadCostTable(std::string_view json);
std::string WriteCostTable(const CostTable& table);
// Returns the table as a Markdown document.
std::string DescribeCostTable(const CostTable& table);

struct CostVerdict {
  std::vector<std::string> errors;  // counters that are worse than their budgets, rows without any
  std::vector<std::string> hints;   // counters that are better
};
CostVerdict Judge(const CostTable& measured, const CostTable& budgets);

}  // namespace sluice::simt
