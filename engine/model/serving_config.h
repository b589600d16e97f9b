// What a model's config.json says of its prompts and of the outputs behind its last norm.
//
// In the object "sluice", beside what makes the architecture (engine/model/config.h):
//   "embedding": {
//     "pooling": "mean" | "cls" | "last",   default: last where attention is causal, else mean
//     "normalize": false }                  to length 1
//   "classifier": {                         scores of a pooled state; also for
//                                           BertForSequenceClassification, whose keys stand for it
//     "labels": n,                          rows of classifier.weight [labels, hidden]
//     "pooling": "cls" | "mean" | "last",   default: last where attention is causal, else cls
//     "pooler": "none" | "tanh",            tanh: of pooler.dense [hidden, hidden] and its bias before
//     "bias": true }                        classifier.bias [labels]
//   "position_alignment": "start" | "end"   end: the last token of a prompt is at the last position
//   "truncate": "error" | "left" | "right"  what becomes of longer prompts; a request may say otherwise
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/enum_names.h"

namespace sluice {

class ObjectReader;
struct ModelConfig;

// Which states make an embedding: the mean of all positions', the first one's, the last one's.
enum class Pooling { kMean, kCls, kLast };
constexpr auto EnumNamesOf(Pooling) {
  using enum Pooling;
  return EnumNameTable<Pooling>({{kMean, "mean"}, {kCls, "cls"}, {kLast, "last"}});
}
inline constexpr std::span<const std::string_view> kPoolingNames = kNamesOf<Pooling>;

// What becomes of a prompt that is too long: it is refused, or loses its first or its last tokens.
enum class Truncation { kError, kLeft, kRight };
constexpr auto EnumNamesOf(Truncation) {
  using enum Truncation;
  return EnumNameTable<Truncation>({{kError, "error"}, {kLeft, "left"}, {kRight, "right"}});
}
inline constexpr std::span<const std::string_view> kTruncationNames = kNamesOf<Truncation>;

// Positions of a prompt of n tokens: 0 .. n - 1, or max_positions - n .. max_positions - 1, as windows
// are filled from the right. The second has room for one generated token at most.
enum class PositionAlignment { kStart, kEnd };
constexpr auto EnumNamesOf(PositionAlignment) {
  using enum PositionAlignment;
  return EnumNameTable<PositionAlignment>({{kStart, "start"}, {kEnd, "end"}});
}

struct ClassifierConfig {
  int64_t labels = 0;  // 0: there is none
  Pooling pooling = Pooling::kCls;
  bool pooler = false;
  bool bias = true;
};

struct ServingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalize = false;
  ClassifierConfig classifier;
  PositionAlignment alignment = PositionAlignment::kStart;
  Truncation truncate = Truncation::kError;
};

inline constexpr int64_t kMaxLabels = 1 << 20;

// `extensions` is the object "sluice" of `root`. What makes the architecture was read before.
ServingConfig ReadServing(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config);

}  // namespace sluice
