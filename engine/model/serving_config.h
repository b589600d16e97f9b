// The part of a model's config.json about its prompts and the outputs behind its last norm.
//
// These keys are in the object "sluice", beside those of the architecture (engine/model/config.h):
//   "embedding": {
//     "pooling": "mean" | "cls" | "last",   default: last if attention is causal, else mean
//     "normalize": false }                  to length 1
//   "classifier": {                         scores of a pooled state; an architecture for sequence
//                                           classification has it without these keys
//     "labels": n,                          rows of classifier.weight [labels, hidden]
//     "pooling": "cls" | "mean" | "last",   default: last if attention is causal, else cls
//     "pooler": "none" | "tanh",            tanh: pooler.dense [hidden, hidden], bias, tanh
//     "bias": true }                        classifier.bias [labels]
//   "position_alignment": "start" | "end"   end: the last token of a prompt has the last position
//   "truncate": "error" | "left" | "right"  for too long prompts; a request may override it
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace sluice {

class ObjectReader;
struct ModelConfig;

// The states that make an embedding: the mean over all positions, the first one, or the last one.
enum class Pooling { kMean, kCls, kLast };
constexpr auto EnumNamesOf(Pooling) {
  using enum Pooling;
  return EnumNameTable<Pooling>({{kMean, "mean"}, {kCls, "cls"}, {kLast, "last"}});
}
inline constexpr std::span<const std::string_view> kPoolingNames = kNamesOf<Pooling>;

// The treatment of a prompt that is too long: it is refused, or loses its first or its last tokens.
enum class Truncation { kError, kLeft, kRight };
constexpr auto EnumNamesOf(Truncation) {
  using enum Truncation;
  return EnumNameTable<Truncation>({{kError, "error"}, {kLeft, "left"}, {kRight, "right"}});
}
inline constexpr std::span<const std::string_view> kTruncationNames = kNamesOf<Truncation>;

// The positions of a prompt of n tokens: 0 .. n - 1, or max_positions - n .. max_positions - 1, as
// windows are filled from the right. The second leaves room for at most one generated token.
enum class PositionAlignment { kStart, kEnd };
constexpr auto EnumNamesOf(PositionAlignment) {
  using enum PositionAlignment;
  return EnumNameTable<PositionAlignment>({{kStart, "start"}, {kEnd, "end"}});
}

enum class PoolerActivation { kTanh, kRelu, kGelu };

// Scores are rows of `module`, of a pooled state or, with a pooler, of a dense layer, an activation
// and perhaps a layer norm behind it.
struct ClassifierConfig {
  int64_t labels = 0;  // 0 if there is none
  Pooling pooling = Pooling::kCls;
  bool pooler = false;
  bool bias = true;
  std::string module = "classifier";
  std::string pooler_module = "pooler.dense";  // a checkpoint may have the family's prefix
  bool pooler_bias = true;
  PoolerActivation activation = PoolerActivation::kTanh;
  std::string norm_module = {};  // empty for none; it has a bias as config.norm says
};

struct ServingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalize = false;
  ClassifierConfig classifier;
  PositionAlignment alignment = PositionAlignment::kStart;
  Truncation truncate = Truncation::kError;
};

inline constexpr int64_t kMaxLabels = 1 << 20;

// Requires that `extensions` is the object "sluice" of `root`, and that the architecture was read
// into `config`, whose classifier is the family's. `scores` says whether the architecture has it.
ServingConfig ReadServing(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config,
                          bool scores = false);

}  // namespace sluice
