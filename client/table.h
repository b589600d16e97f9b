// Text columns with a heading, aligned for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::client {

// The width of wrapped text.
inline constexpr size_t kTerminalColumns = 100;

// Formats a share of 1 with one decimal: "12.3%".
std::string Percent(double share);

// Returns the number with the noun: "1 row", "2 rows".
std::string Counted(int64_t count, const char* one, const char* several);

// Returns a line "LABEL TEXT". The text begins at the column `indent`, or after a longer label, and
// is wrapped to the terminal.
std::string Labelled(const std::string& label, size_t indent, const std::string& text);

// Returns the text with control characters escaped, cut to `columns` with "..." at its end.
std::string Shortened(absl::string_view text, size_t columns);

class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  // Requires the same number of cells as headings.
  void AddRow(std::vector<std::string> cells);

  // Returns the text. Columns whose cells all look like numbers are aligned to the right. Control
  // characters are escaped, because cells may hold text from a server.
  std::string Render() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first row holds the headings
};

}  // namespace sluice::client
