#include "server/protocol/request/item_lists.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/protocol/parameters/parameters.h"
#include "server/protocol/tensors/tensors.h"

namespace sluice {
namespace {

// Checks that every element is in [-1, vocab).
absl::Status CheckItems(absl::string_view name, const IntMatrix& items, int64_t vocab) {
  for (int64_t row = 0; row < items.rows; ++row) {
    for (int64_t i = 0; i < items.columns; ++i) {
      const int64_t id = items.At(row, i);
      if (id >= -1 && id < vocab) continue;
      return InputError(name, absl::StrCat("[", row, ", ", i, "] is ", id, "; expected 0 to ",
                                           vocab - 1, ", or -1 for none"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<IntMatrix> ReadItems(const InputTensor& tensor, int64_t rows, int64_t most,
                                    int64_t vocab) {
  SLUICE_ASSIGN_OR_RETURN(const IntMatrix items,
                          ReadInts(tensor, /*int64_allowed=*/true, {rows, rows}, {1, most}));
  SLUICE_RETURN_IF_ERROR(CheckItems(tensor.header->name(), items, vocab));
  return items;
}

absl::Status ReadCandidates(const InputTensor& tensor, int64_t rows, int64_t vocab,
                            Request* request) {
  SLUICE_ASSIGN_OR_RETURN(const auto items, ReadItems(tensor, rows, kMaxCandidates, vocab));
  RowLists& lists = request->candidates;
  for (int64_t row = 0; row < rows; ++row) {
    lists.begin.push_back(row * items.columns);
    for (int64_t i = 0; i < items.columns; ++i) {
      lists.values.push_back(items.At(row, i));
    }
  }
  lists.begin.push_back(std::ssize(lists.values));
  return absl::OkStatus();
}

// Checks that the row has enough tokens to choose from. Requires `banned` and `excluded` to be
// ascending and distinct.
absl::Status CheckChoice(int64_t row, std::span<const int32_t> excluded,
                         const std::vector<int32_t>& banned, const RequestSpec& spec,
                         int64_t vocab) {
  const auto count = std::ssize(excluded);
  if (spec.num_top + count > vocab) {
    return InputError("exclude_ids",
                      absl::StrCat("leaves ", vocab - count, " tokens for row ", row,
                                   ", but num_top_logprobs is ", spec.num_top,
                                   "; exclude fewer tokens or lower num_top_logprobs"));
  }
  const auto free = [&](int32_t token) {
    return !std::binary_search(excluded.begin(), excluded.end(), token) &&
           !std::binary_search(banned.begin(), banned.end(), token);
  };
  const std::vector<int32_t>& allowed = spec.edits.allowed;
  bool any = std::any_of(allowed.begin(), allowed.end(), free);
  if (allowed.empty()) {
    const auto both = std::count_if(banned.begin(), banned.end(), [&](int32_t token) {
      return !std::binary_search(excluded.begin(), excluded.end(), token);
    });
    any = both + count < vocab;
  }
  if (any) return absl::OkStatus();
  return InputError("exclude_ids", absl::StrCat("leaves no token to draw for row ", row,
                                                "; exclude fewer tokens"));
}

absl::Status ReadExcluded(const InputTensor& tensor, int64_t rows, const ModelConfig& config,
                          const RequestSpec& spec, Request* request) {
  SLUICE_ASSIGN_OR_RETURN(const auto items,
                          ReadItems(tensor, rows, kMaxExcluded, config.vocab_size));
  const std::vector<int32_t> banned = ForbiddenTokens(spec, config);
  RowLists& lists = request->excluded;
  std::vector<int32_t> of_row;
  for (int64_t row = 0; row < rows; ++row) {
    of_row.clear();
    for (int64_t i = 0; i < items.columns; ++i) {
      if (items.At(row, i) >= 0) of_row.push_back(items.At(row, i));
    }
    std::sort(of_row.begin(), of_row.end());
    of_row.erase(std::unique(of_row.begin(), of_row.end()), of_row.end());
    SLUICE_RETURN_IF_ERROR(CheckChoice(row, of_row, banned, spec, config.vocab_size));
    lists.begin.push_back(std::ssize(lists.values));
    lists.values.insert(lists.values.end(), of_row.begin(), of_row.end());
  }
  lists.begin.push_back(std::ssize(lists.values));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadItemLists(const InputTensors& inputs, int64_t rows, const ModelConfig& config,
                           const RequestSpec& spec, Request* request) {
  if (inputs.has(Input::kCandidateIds)) {
    SLUICE_RETURN_IF_ERROR(
        ReadCandidates(inputs.of(Input::kCandidateIds), rows, config.vocab_size, request));
  }
  if (!inputs.has(Input::kExcludeIds)) return absl::OkStatus();
  return ReadExcluded(inputs.of(Input::kExcludeIds), rows, config, spec, request);
}

}  // namespace sluice
