// Text columns with a heading, aligned for a terminal.
#pragma once

#include <string>
#include <vector>

namespace sluice::client {

// A share of 1, with one decimal: "12.3%".
std::string Percent(double share);

class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  // As many cells as headings.
  void AddRow(std::vector<std::string> cells);

  // Cells that look like numbers stand to the right of their column. Control characters are shown
  // escaped: cells may hold what a server sent.
  std::string Render() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first is the headings
};

}  // namespace sluice::client
