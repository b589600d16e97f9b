#include "verify/golden.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::verify {
namespace {

// Returns the value as an integer if it is one in [min, max], and -1 otherwise.
int64_t Whole(double value, int64_t min, int64_t max) {
  const bool fits = value >= static_cast<double>(min) && value <= static_cast<double>(max);
  return fits && std::floor(value) == value ? static_cast<int64_t>(value) : -1;
}

absl::StatusOr<std::vector<int64_t>> Lengths(const std::map<std::string, Array>& arrays,
                                             const Array& ids) {
  const int64_t longest = ids.shape[1];
  std::vector<int64_t> lengths(ids.shape[0], longest);
  const auto it = arrays.find("input_lengths");
  if (it == arrays.end()) return lengths;
  if (it->second.values.size() != lengths.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input_lengths has ", it->second.values.size(),
                                                   " lengths for ", lengths.size(), " sequences"));
  }
  for (size_t row = 0; row < lengths.size(); ++row) {
    lengths[row] = Whole(it->second.values[row], 1, longest);
    if (lengths[row] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("input_lengths[", row, "] is not in [1, ", longest, "]"));
    }
  }
  return lengths;
}

// Reads the first numbers of each row, up to its length. They must be in [0, below).
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadRows(const std::string& name,
                                                           const Array& array,
                                                           const std::vector<int64_t>& lengths,
                                                           int64_t below) {
  std::vector<std::vector<int32_t>> rows;
  for (size_t row = 0; row < lengths.size(); ++row) {
    std::vector<int32_t>& values = rows.emplace_back();
    for (int64_t position = 0; position < lengths[row]; ++position) {
      const auto place = static_cast<size_t>(static_cast<int64_t>(row) * array.shape[1] + position);
      const int64_t value = Whole(array.values[place], 0, below - 1);
      if (value < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, "[", row, ", ", position, "] is not in [0, ", below - 1, "]"));
      }
      values.push_back(static_cast<int32_t>(value));
    }
  }
  return rows;
}

absl::Status ReadSequences(const std::map<std::string, Array>& arrays, const ModelConfig& config,
                           Golden* golden) {
  const auto it = arrays.find("input_ids");
  if (it == arrays.end() || it->second.shape.size() != 2 || it->second.values.empty()) {
    return absl::InvalidArgumentError("input_ids [n, length] is missing");
  }
  const Array& ids = it->second;
  SLUICE_ASSIGN_OR_RETURN(const auto lengths, Lengths(arrays, ids));
  for (size_t row = 0; row < lengths.size(); ++row) {
    if (lengths[row] > config.max_positions) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input_ids has ", lengths[row], " positions; the model has ", config.max_positions));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(golden->sequences,
                          ReadRows("input_ids", ids, lengths, config.vocab_size));
  const auto types = arrays.find("token_type_ids");
  if (types == arrays.end()) return absl::OkStatus();
  if (types->second.shape != ids.shape) {
    return absl::InvalidArgumentError("token_type_ids is not of the shape of input_ids");
  }
  SLUICE_ASSIGN_OR_RETURN(golden->types, ReadRows("token_type_ids", types->second, lengths,
                                                  std::max<int64_t>(config.token_types, 1)));
  return absl::OkStatus();
}

// Returns whether an output is of sequences, [n, width], rather than of positions, [n, length,
// width].
bool IsOfSequences(const std::string& name, const Array& array) {
  return name == "scores" || name == "embedding" ||
         (name.starts_with("module:") && array.shape.size() == 2);
}

absl::Status CheckShape(const std::string& name, const Array& array,
                        const std::vector<int64_t>& ids) {
  if (IsOfSequences(name, array)) {
    if (array.shape.size() == 2 && array.shape[0] == ids[0]) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(absl::CHexEscape(name), " is not of shape [", ids[0], ", width]"));
  }
  if (array.shape.size() == 3 && array.shape[0] == ids[0] && array.shape[1] == ids[1]) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(absl::CHexEscape(name), " is not of shape [", ids[0], ", ", ids[1], ", width]"));
}

}  // namespace

absl::StatusOr<Golden> ParseGolden(std::map<std::string, Array> arrays, const ModelConfig& config) {
  Golden golden;
  SLUICE_RETURN_IF_ERROR(ReadSequences(arrays, config, &golden));
  const std::vector<int64_t> shape = arrays["input_ids"].shape;
  for (auto& [name, array] : arrays) {
    if (name == "input_ids" || name == "input_lengths" || name == "token_type_ids") continue;
    SLUICE_RETURN_IF_ERROR(CheckShape(name, array, shape));
    auto& outputs = IsOfSequences(name, array) ? golden.sequence_outputs : golden.outputs;
    outputs[name] = std::move(array);
  }
  if (golden.outputs.empty() && golden.sequence_outputs.empty()) {
    return absl::InvalidArgumentError("the golden has no output to compare with");
  }
  return golden;
}

}  // namespace sluice::verify
