// The parameters of a request, as one table. The server reads requests with it, the client makes
// its flags and JSON keys from it, and a test compares docs/api.md with it. To add a number, a flag
// or a word, add its field to RequestSpec and its row to the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/model/config.h"
#include "engine/request.h"

namespace sluice {

inline constexpr size_t kMaxBiasEntries = 1024;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr size_t kMaxStopTexts = 16;
inline constexpr size_t kMaxStopTextBytes = 256;
inline constexpr size_t kMaxExtractionLabels = 128;
inline constexpr double kMaxBias = 100;
inline constexpr size_t kMaxPredictionBytes = size_t{1} << 16;

// The notation of a parameter in a request.
enum class ParameterKind {
  kInteger,
  kUnsigned,  // 64 bits
  kReal,
  kDuration,  // an integer of microseconds
  kSwitch,    // a bool, 0 or 1
  kIds,       // token ids: text, [1, 2] or 1,2
  kBiases,    // text, JSON {"ID": bias}
  kWord,      // one word of a list
  kName,      // a text of at most range.max bytes, such as the name of a prompt
  kTexts,     // text, or JSON ["text", ..], of 1 to 256 bytes each
  kSpans,     // JSON, a list of [begin, end] for each row: [[[0, 12], [12, 30]], ..]
};

// The field that a parameter fills.
template <typename T>
using FieldOf = T& (*)(RequestSpec& spec);
// Stores the word of this index, for a parameter of kind kWord.
using StoreWord = void (*)(RequestSpec& spec, size_t word);
using ParameterField =
    std::variant<FieldOf<int32_t>, FieldOf<int64_t>, FieldOf<uint64_t>, FieldOf<float>,
                 FieldOf<bool>, FieldOf<std::vector<int32_t>>,
                 FieldOf<std::vector<kernels::TokenBias>>, FieldOf<std::vector<std::string>>,
                 StoreWord, FieldOf<std::string>, FieldOf<std::vector<std::vector<TextSpan>>>>;

// A number of a model that is the upper end of a range.
struct ModelBound {
  std::string_view name;  // as documented
  int64_t (*of)(const ModelConfig& config);
};

// The range of a number, or of the number of entries of a list.
struct ParameterRange {
  double min = 0;
  double max = 0;
  const ModelBound* model_max = nullptr;  // the end of the range instead of `max`, if not null
  bool above_min = false;                 // min itself is out of range
  bool zero_too = false;                  // 0 is also allowed, below the range

  double MaxFor(const ModelConfig& config) const {
    return model_max == nullptr ? max : static_cast<double>(model_max->of(config));
  }
};

struct ParameterInfo {
  std::string_view name;  // in requests
  ParameterField field;
  ParameterRange range = {};                     // for numbers and lists
  std::span<const std::string_view> words = {};  // the words of kWord
  bool microseconds = false;                     // the unit of an integer
  std::string_view if_absent =
      {};  // the effect of its absence; if empty, the field keeps its default
  std::string_view default_means = {};  // the meaning of the default, such as "off"; may be empty
  std::string_view help = {};           // sentences
  std::string_view client_name = name;  // the client's JSON key and flag; empty if there is none

  ParameterKind kind() const;
  // Returns the range of a number as text: "[0, vocab]", "0 or [0.001, 1000]", "(0, 1]".
  std::string RangeText() const;
  // Returns the effect of leaving the parameter out, as text: "0 (off)".
  std::string DefaultText() const;
};

// Returns all parameters, in the order of the documentation.
std::span<const ParameterInfo> RequestParameters();

// Returns nullptr if there is no such parameter.
const ParameterInfo* FindParameter(std::string_view name);

}  // namespace sluice
