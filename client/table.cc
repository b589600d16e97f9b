#include "client/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/text_wrap.h"

namespace sluice::client {
namespace {

bool LooksNumeric(const std::string& cell) {
  return !cell.empty() && absl::ascii_isdigit(cell[0]) &&
         cell.find_first_not_of("0123456789.%-") == cell.npos;
}

}  // namespace

std::string Counted(int64_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string Labelled(const std::string& label, size_t indent, const std::string& text) {
  const size_t gap = label.size() < indent ? indent - label.size() : 1;
  const std::vector<std::string> lines = Wrap(text, kTerminalColumns - indent);
  return absl::StrCat(label, label.empty() ? "" : std::string(gap, ' '),
                      absl::StrJoin(lines, absl::StrCat("\n", std::string(indent, ' '))), "\n");
}

std::string Shortened(absl::string_view text, size_t columns) {
  constexpr absl::string_view kCut = "...";
  std::string shown = absl::Utf8SafeCHexEscape(text);
  if (shown.size() <= columns) return shown;
  size_t end = columns - kCut.size();
  while (end > 0 && (shown[end] & 0xc0) == 0x80) --end;  // inside a character of several bytes
  return absl::StrCat(shown.substr(0, end), kCut);
}

Table::Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}

void Table::AddRow(std::vector<std::string> cells) {
  SLUICE_CHECK(cells.size() == rows_.front().size());
  for (std::string& cell : cells) cell = absl::Utf8SafeCHexEscape(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], row[c].size());
      if (&row != &rows_.front()) numeric[c] = numeric[c] && LooksNumeric(row[c]);
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string gap(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", numeric[c] ? gap : "", row[c],
                      numeric[c] ? "" : gap);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

}  // namespace sluice::client
