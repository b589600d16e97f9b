#include "base/trace_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTokens = 1 << 24;
constexpr int kMaxJsonDepth = 4;
constexpr size_t kMaxRows = 20'000'000;
constexpr size_t kMaxLineBytes = 1 << 16;

// Walks the rows of a CSV file without quotes and reads the needed columns as numbers. Only one row
// is split at a time.
class CsvReader {
 public:
  explicit CsvReader(absl::string_view text) : rest_(text) {}

  absl::Status ReadHeading() {
    SLUICE_RETURN_IF_ERROR(TakeLine());
    for (absl::string_view name : absl::StrSplit(row_, ',')) {
      headings_.emplace_back(absl::StripAsciiWhitespace(name));
    }
    return absl::OkStatus();
  }

  // The position of a column, or -1.
  int Column(absl::string_view name) const {
    for (size_t i = 0; i < headings_.size(); ++i) {
      if (headings_[i] == name) return static_cast<int>(i);
    }
    return -1;
  }

  absl::StatusOr<int> Required(absl::string_view name) const {
    const int column = Column(name);
    if (column >= 0) return column;
    return absl::InvalidArgumentError(absl::StrCat("the heading has no column ", name));
  }

  // Goes to the next line that is not blank; false at the end.
  absl::StatusOr<bool> Next() {
    while (!rest_.empty()) {
      SLUICE_RETURN_IF_ERROR(TakeLine());
      if (row_.empty()) continue;
      cells_ = absl::StrSplit(row_, ',');
      return true;
    }
    return false;
  }

  absl::StatusOr<double> Number(int column, double max) const {
    const auto at = static_cast<size_t>(column);
    double value = 0;
    if (at >= cells_.size() || !absl::SimpleAtod(absl::StripAsciiWhitespace(cells_[at]), &value) ||
        !std::isfinite(value) || value < 0 || value > max) {
      return Wrong(absl::StrCat(headings_[at], " must be a number from 0 to ", max));
    }
    return value;
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }

 private:
  absl::Status TakeLine() {
    ++line_;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    if (end > kMaxLineBytes) {
      return Wrong(absl::StrCat("has ", end, " bytes; the limit is ", kMaxLineBytes));
    }
    row_ = absl::StripAsciiWhitespace(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return absl::OkStatus();
  }

  absl::string_view rest_;
  absl::string_view row_;
  size_t line_ = 0;  // of the row, from 1
  std::vector<std::string> headings_;
  std::vector<absl::string_view> cells_;
};

absl::StatusOr<TraceRow> ReadRow(const CsvReader& reader, int arrival, int input, int output) {
  SLUICE_ASSIGN_OR_RETURN(const double at, reader.Number(arrival, 1e9));
  SLUICE_ASSIGN_OR_RETURN(const double tokens, reader.Number(input, kMaxTokens));
  SLUICE_ASSIGN_OR_RETURN(const double generated,
                          output < 0 ? 0 : reader.Number(output, kMaxTokens));
  return TraceRow{at, static_cast<int32_t>(tokens), static_cast<int32_t>(generated)};
}

absl::Status WrongLine(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

// Reads a line of Mooncake's traces. The hashes of its blocks are not read.
absl::StatusOr<TraceRow> ReadJsonRow(absl::string_view line) {
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json object,
                          ParseJson({line.data(), line.size()}, kMaxJsonDepth));
  if (!object.is_object()) return absl::InvalidArgumentError("expected an object");
  absl::Status status;
  ObjectReader reader(object, "", &status);
  const TraceRow row{
      .arrival_s = reader.Number("timestamp", 0, 1e12) / 1000,
      .input_tokens = static_cast<int32_t>(reader.Integer("input_length", 0, kMaxTokens)),
      .output_tokens = static_cast<int32_t>(reader.Integer("output_length", 0, kMaxTokens, 0))};
  SLUICE_RETURN_IF_ERROR(status);
  return row;
}

absl::StatusOr<std::vector<TraceRow>> ParseJsonLines(absl::string_view text) {
  std::vector<TraceRow> rows;
  double first = 0;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (line.size() > kMaxLineBytes) {
      return WrongLine(number,
                       absl::StrCat("has ", line.size(), " bytes; the limit is ", kMaxLineBytes));
    }
    absl::StatusOr<TraceRow> row = ReadJsonRow(line);
    if (!row.ok()) return WrongLine(number, row.status().message());
    if (rows.empty()) first = row->arrival_s;
    row->arrival_s -= first;
    if (!rows.empty() && row->arrival_s < rows.back().arrival_s) {
      return WrongLine(number, "timestamp decreases");
    }
    if (rows.size() == kMaxRows) {
      return WrongLine(number, absl::StrCat("a trace has at most ", kMaxRows, " rows"));
    }
    rows.push_back(*row);
  }
  return rows;  // the text has a line that is not blank
}

}  // namespace

absl::StatusOr<std::vector<TraceRow>> ParseTrace(absl::string_view text) {
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) return ParseJsonLines(text);
  CsvReader reader(text);
  SLUICE_RETURN_IF_ERROR(reader.ReadHeading());
  SLUICE_ASSIGN_OR_RETURN(const int arrival, reader.Required("arrival_s"));
  SLUICE_ASSIGN_OR_RETURN(const int input, reader.Required("input_tokens"));
  std::vector<TraceRow> rows;
  double first = 0;
  absl::StatusOr<bool> more;
  for (more = reader.Next(); more.ok() && *more; more = reader.Next()) {
    SLUICE_ASSIGN_OR_RETURN(TraceRow row,
                            ReadRow(reader, arrival, input, reader.Column("output_tokens")));
    if (rows.empty()) first = row.arrival_s;
    row.arrival_s -= first;
    const double before = rows.empty() ? 0 : rows.back().arrival_s;
    if (row.arrival_s < before)
      return reader.Wrong("arrival_s decreases; sort the rows by arrival_s");
    if (rows.size() == kMaxRows) return reader.Wrong("a trace has at most 20000000 rows");
    rows.push_back(row);
  }
  SLUICE_RETURN_IF_ERROR(more.status());
  if (rows.empty()) return absl::InvalidArgumentError("the trace has no row");
  return rows;
}

std::string FormatJsonLines(const std::vector<TraceRow>& rows) {
  constexpr int32_t kBlockTokens = 512;
  std::string text;
  int64_t next_hash = 0;
  for (const TraceRow& row : rows) {
    absl::StrAppendFormat(&text, "{\"timestamp\": %.3f, \"input_length\": %d, ",
                          1000 * row.arrival_s, row.input_tokens);
    absl::StrAppendFormat(&text, "\"output_length\": %d, \"hash_ids\": [", row.output_tokens);
    for (int32_t first = 0; first < row.input_tokens; first += kBlockTokens) {
      absl::StrAppend(&text, first == 0 ? "" : ", ", next_hash++);
    }
    absl::StrAppend(&text, "]}\n");
  }
  return text;
}

std::string FormatCsv(const std::vector<TraceRow>& rows) {
  std::string text = "arrival_s,input_tokens,output_tokens\n";
  for (const TraceRow& row : rows) {
    absl::StrAppendFormat(&text, "%.6f,%d,%d\n", row.arrival_s, row.input_tokens,
                          row.output_tokens);
  }
  return text;
}

absl::StatusOr<std::vector<LengthCount>> ParseLengthCounts(absl::string_view csv) {
  CsvReader reader(csv);
  SLUICE_RETURN_IF_ERROR(reader.ReadHeading());
  SLUICE_ASSIGN_OR_RETURN(const int tokens_column, reader.Required("tokens"));
  SLUICE_ASSIGN_OR_RETURN(const int count_column, reader.Required("count"));
  std::vector<LengthCount> counts;
  double sum = 0;
  absl::StatusOr<bool> more;
  for (more = reader.Next(); more.ok() && *more; more = reader.Next()) {
    SLUICE_ASSIGN_OR_RETURN(const double tokens, reader.Number(tokens_column, kMaxTokens));
    SLUICE_ASSIGN_OR_RETURN(const double count, reader.Number(count_column, 1e15));
    if (tokens < 1) return reader.Wrong("tokens must be at least 1");
    sum += count;
    counts.push_back({static_cast<int32_t>(tokens), count});
  }
  SLUICE_RETURN_IF_ERROR(more.status());
  if (!(sum > 0)) return absl::InvalidArgumentError("the counts sum to 0");
  return counts;
}

}  // namespace sluice
