#include "server/protocol/request/token_positions.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/protocol/parameters/parameter_value.h"
#include "server/protocol/tensors/tensors.h"

namespace sluice {
namespace {

constexpr char kName[] = "spans";

absl::Status SpanError(size_t row, size_t index, const TextSpan& span, absl::string_view problem) {
  return ParameterError(kName, absl::StrCat("[", row, "][", index, "] is [", span.begin, ", ",
                                            span.end, "]; ", problem));
}

// Returns the byte where each character of the text begins, and the end of the text.
std::vector<int32_t> CharacterPlaces(std::string_view text) {
  std::vector<int32_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool continues = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    if (!continues) places.push_back(static_cast<int32_t>(i));
  }
  places.push_back(static_cast<int32_t>(text.size()));
  return places;
}

// Returns the positions of the tokens whose text begins in the bytes of the span; empty if there
// are none.
TextSpan TokensOf(const TextSpan& bytes, std::span<const ByteRange> ranges) {
  TextSpan tokens;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin < bytes.begin || ranges[i].begin >= bytes.end) continue;
    if (tokens.end == 0) tokens.begin = static_cast<int32_t>(i);
    tokens.end = static_cast<int32_t>(i) + 1;
  }
  return tokens;
}

// Finds the tokens of the spans of one row.
class RowSpans {
 public:
  RowSpans(SpanUnit unit, std::string_view text, std::span<const ByteRange> ranges, int32_t length)
      : unit_(unit), size_(length), ranges_(ranges) {
    if (unit == SpanUnit::kBytes) size_ = static_cast<int32_t>(text.size());
    if (unit != SpanUnit::kCharacters) return;
    characters_ = CharacterPlaces(text);
    size_ = static_cast<int32_t>(std::ssize(characters_)) - 1;
  }

  absl::StatusOr<TextSpan> Find(size_t row, size_t index, const TextSpan& span) const {
    if (span.end > size_) {
      return SpanError(row, index, span,
                       absl::StrCat("row ", row, " has ", size_, " ",
                                    absl::string_view(NameOf(unit_).data(), NameOf(unit_).size())));
    }
    if (unit_ == SpanUnit::kTokens) return span;
    TextSpan bytes = span;
    if (unit_ == SpanUnit::kCharacters) bytes = {characters_[span.begin], characters_[span.end]};
    const TextSpan tokens = TokensOf(bytes, ranges_);
    if (tokens.end > 0) return tokens;
    return SpanError(row, index, span,
                     "no token of the row begins in it, perhaps because the row was cut. Give a "
                     "span with tokens");
  }

 private:
  SpanUnit unit_;
  int32_t size_;                     // of the row, in units
  std::vector<int32_t> characters_;  // the byte of each, if they are the unit
  std::span<const ByteRange> ranges_;
};

absl::Status CheckSpans(const RequestSpec& spec, size_t rows) {
  const StateRules& states = spec.states;
  if (states.pooling.all.size() > 1) {
    return ParameterError(kName, "needs a model with one pooling; this model concatenates several");
  }
  if (states.spans.size() == rows) return absl::OkStatus();
  return ParameterError(kName, absl::StrCat("has lists for ", states.spans.size(),
                                            " rows; the request has ", rows, " rows"));
}

}  // namespace

bool NeedsPlaces(const RequestSpec& spec) {
  return !spec.states.spans.empty() && spec.states.span_unit != SpanUnit::kTokens;
}

absl::StatusOr<RowLists> SpanPositions(const RequestSpec& spec, const std::vector<int32_t>& lengths,
                                       const SpanTexts& texts) {
  SLUICE_RETURN_IF_ERROR(CheckSpans(spec, lengths.size()));
  const StateRules& states = spec.states;
  const auto rows = std::ssize(lengths);
  std::vector<std::string_view> strings(lengths.size());
  if (NeedsPlaces(spec)) {
    SLUICE_ASSIGN_OR_RETURN(strings, ReadStrings(texts.inputs.of(Input::kTextInput), {rows, rows}));
  }
  RowLists positions{.values = {}, .begin = {0}};
  size_t token = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    std::span<const ByteRange> ranges(texts.ranges);
    if (!ranges.empty()) ranges = ranges.subspan(token, lengths[row]);
    token += lengths[row];
    const RowSpans spans(states.span_unit, strings[row], ranges, lengths[row]);
    for (size_t i = 0; i < states.spans[row].size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const TextSpan tokens, spans.Find(row, i, states.spans[row][i]));
      positions.values.push_back(tokens.begin);
      positions.values.push_back(tokens.end);
    }
    positions.begin.push_back(static_cast<int32_t>(std::ssize(positions.values)));
  }
  return positions;
}

RowLists VectorPositions(const RequestSpec& spec, const Request& request) {
  const Model& model = *spec.model;
  RowLists positions{.values = {}, .begin = {0}};
  int64_t row_begin = 0;
  for (size_t row = 0; row < spec.lengths.size(); ++row) {
    const int32_t length = spec.lengths[row];
    TextTask task = spec.states.task;
    if (request.queries > 0) {
      const bool query = static_cast<int64_t>(row) < request.queries;
      task = query ? TextTask::kQuery : TextTask::kDocument;
    }
    const std::vector<int32_t>& without = model.tasks.Of(task).without_vector;
    for (int32_t position = model.config.serving.vectors->first; position < length; ++position) {
      // Rows of vectors have no tokens.
      const bool skipped =
          request.inputs.empty() &&
          std::ranges::binary_search(without, request.tokens[row_begin + position]);
      if (!skipped) positions.values.push_back(position);
    }
    row_begin += length;
    positions.begin.push_back(static_cast<int32_t>(std::ssize(positions.values)));
  }
  return positions;
}

std::vector<int32_t> SizesOf(const RowLists& lists) {
  std::vector<int32_t> sizes;
  for (size_t row = 0; row + 1 < lists.begin.size(); ++row) {
    sizes.push_back(lists.begin[row + 1] - lists.begin[row]);
  }
  return sizes;
}

}  // namespace sluice
