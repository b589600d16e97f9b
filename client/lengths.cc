#include "client/lengths.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/option_value.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxLineBytes = 1 << 16;
constexpr size_t kMaxLengths = size_t{1} << 24;

// Returns false at the end. Cuts a line after kMaxLineBytes + 1 bytes.
bool ReadLine(std::istream* in, std::string* line) {
  line->clear();
  for (int c = in->get(); c != std::istream::traits_type::eof(); c = in->get()) {
    if (c == '\n') return true;
    if (line->size() <= kMaxLineBytes) line->push_back(static_cast<char>(c));
  }
  return !line->empty();
}

absl::string_view Cell(absl::string_view line, size_t column) {
  for (absl::string_view cell : absl::StrSplit(line, ',')) {
    if (column-- == 0) return absl::StripAsciiWhitespace(cell);
  }
  return "";
}

class Reader {
 public:
  Reader(std::istream* in, const std::string& name, const LengthsFormat& format)
      : in_(in), name_(name), format_(format) {}

  absl::StatusOr<std::vector<int32_t>> Read() {
    std::vector<int32_t> lengths;
    std::string line;
    for (; ReadLine(in_, &line); ++number_) {
      if (line.size() > kMaxLineBytes) {
        return Error(absl::StrCat("the line has more than ", kMaxLineBytes, " bytes"));
      }
      if (number_ == 1) {
        SLUICE_RETURN_IF_ERROR(FindColumn(line));
        if (heading_) continue;
      }
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      if (lengths.size() == kMaxLengths)
        return Error(absl::StrCat("more than ", kMaxLengths, " lengths"));
      SLUICE_ASSIGN_OR_RETURN(const int32_t length, Length(Cell(line, column_)));
      lengths.push_back(length);
    }
    if (lengths.empty()) return absl::InvalidArgumentError(absl::StrCat(name_, ": no lengths"));
    return lengths;
  }

 private:
  absl::Status FindColumn(absl::string_view first) {
    int64_t number = 1;
    if (!format_.column.empty() && !absl::SimpleAtoi(format_.column, &number)) {
      const std::vector<absl::string_view> names = absl::StrSplit(first, ',');
      const auto found = std::find_if(names.begin(), names.end(), [this](absl::string_view cell) {
        return absl::StripAsciiWhitespace(cell) == format_.column;
      });
      if (found == names.end()) {
        return Error(absl::StrCat("no column ", Quote(format_.column),
                                  " in the first line; set --column to a "
                                  "name from there or to a number"));
      }
      number = found - names.begin() + 1;
    }
    if (number < 1)
      return Error(absl::StrCat("--column: expected a number of at least 1, got ", number));
    column_ = number - 1;
    int64_t ignored;
    heading_ = !absl::SimpleAtoi(Cell(first, column_), &ignored);
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> Length(absl::string_view text) const {
    int64_t length;
    const char* remedy = "if a line has several values, name their column with --column";
    if (absl::SimpleAtoi(text, &length) && length >= 1) {
      if (length <= format_.maximum) return static_cast<int32_t>(length);
      if (format_.clip) return format_.maximum;
      remedy = "raise --max-batch-tokens, or reduce longer sequences with --clip";
    }
    return Error(absl::StrFormat("expected a length in [1, %d], got %s; %s", format_.maximum,
                                 Quote(text.substr(0, 80)), remedy));
  }

  absl::Status Error(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ":", number_, ": ", problem));
  }

  std::istream* const in_;
  const std::string name_;
  const LengthsFormat format_;
  int64_t number_ = 1;
  size_t column_ = 0;
  bool heading_ = false;
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadLengths(std::istream* in, const std::string& name,
                                                 const LengthsFormat& format) {
  return Reader(in, name, format).Read();
}

}  // namespace sluice::client
