// The part of a model's config.json about its prompts and the outputs after its last norm.
//
// These keys are in the object "sluice", with the keys of the architecture (engine/model/config.h):
//   "embedding": {
//     "pooling": a name of Pooling,         default: last if attention is causal, else mean
//     "normalize": false }                  to length 1
//   "classifier": {                         scores of a pooled state, or of each token's state; an
//                                           architecture for sequence or token classification has
//                                           it without these keys
//     "of": "rows" | "tokens",              tokens: no pooling and no pooler
//     "labels": n,                          rows of classifier.weight [labels, hidden]
//     "pooling": "cls" | "mean" | "last",   default: last if attention is causal, else cls
//     "pooler": "none" | "tanh",            tanh: pooler.dense [hidden, hidden], bias, tanh
//     "bias": true }                        classifier.bias [labels]
//   "extraction": {                         finds labelled parts of texts (engine/rows/span_head.h)
//     "width": n,                           values of the head's states; a multiple of 2
//     "lstm_layers": 0,                     over the words, in both directions
//     "max_width": 12,                      the most words of a part
//     "max_words": 384,                     the most words of a text
//     "label_marker": "<<ENT>>",            the token before each label; "" if rows have no labels:
//                                           the model in the folder "labels" then embeds them
//     "separator": "<<SEP>>",               the token between the labels and the text
//     "label_state": "marker" | "next",     the token whose state stands for a label
//     "before_labels": [],                  texts before the first label
//     "after_labels": [],                   texts between the last label and the separator
//     "gate": "",                           a token of before_labels; a classifier of its state
//                                           decides whether the text has parts
//     "label_head": a name of LabelHeadKind,
//     "words": "plain" | "links",
//     "conflicts": "all" | "label" }        label: a part only excludes parts of its own label
//   "position_alignment": "start" | "end"   end: the last token of a prompt has the last position
//   "truncate": "error" | "left" | "right"  for too long prompts; a request may override it
// In a directory of sentence-transformers its files replace them: engine/model/sentence_files.h.
// pair_frame.json adds the text around a query and a document: engine/model/pair_frame.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "engine/model/pair_frame.h"

namespace sluice {

class ObjectReader;
struct ModelConfig;

// The way to combine states into one: their mean, the first or the last one, the largest value of
// each feature, the mean with weight p + 1 for the state of position p, or their sum divided by the
// root of their number.
enum class Pooling { kMean, kCls, kLast, kMax, kWeightedMean, kMeanSqrtLen };
constexpr auto EnumNamesOf(Pooling) {
  using enum Pooling;
  return EnumNameTable<Pooling>({{kMean, "mean"},
                                 {kCls, "cls"},
                                 {kLast, "last"},
                                 {kMax, "max"},
                                 {kWeightedMean, "weighted_mean"},
                                 {kMeanSqrtLen, "mean_sqrt_len"}});
}
inline constexpr std::span<const std::string_view> kPoolingNames = kNamesOf<Pooling>;

// Poolings whose results are concatenated.
struct Poolings {
  Poolings(Pooling one = Pooling::kLast) : all{one} {}  // NOLINT(google-explicit-constructor)
  std::vector<Pooling> all;

  bool operator==(const Poolings&) const = default;
};

// The treatment of a prompt that is too long: it is refused, or its first or last tokens are
// removed.
enum class Truncation { kError, kLeft, kRight };
constexpr auto EnumNamesOf(Truncation) {
  using enum Truncation;
  return EnumNameTable<Truncation>({{kError, "error"}, {kLeft, "left"}, {kRight, "right"}});
}
inline constexpr std::span<const std::string_view> kTruncationNames = kNamesOf<Truncation>;

// The positions of a prompt of n tokens: 0 .. n - 1, or max_positions - n .. max_positions - 1, as
// windows are filled from the right. In the second case at most one token can be generated.
enum class PositionAlignment { kStart, kEnd };
constexpr auto EnumNamesOf(PositionAlignment) {
  using enum PositionAlignment;
  return EnumNameTable<PositionAlignment>({{kStart, "start"}, {kEnd, "end"}});
}

// The scaling of a row's scores, all of them together, before they are returned.
enum class ScoreScale { kRaw, kSoftmax, kSigmoid, kLogSoftmax };

enum class PoolerActivation { kTanh, kRelu, kGelu };

// A score from the logits of the next token: the logit of one token, less the logit of another.
struct LogitScore {
  int32_t true_token = 0;
  int32_t false_token = -1;  // -1 for none

  bool operator==(const LogitScore&) const = default;
};

// Scores are rows of `module`, applied to a pooled state or, with a pooler, to the output of a
// dense layer, an activation and optionally a layer norm.
struct ClassifierConfig {
  int64_t labels = 0;        // 0 if there is none
  bool of_tokens = false;    // whether each token has scores, instead of each row
  bool multi_label = false;  // whether several labels may hold for a row
  bool regression = false;   // whether the scores are estimates of values, not logits of labels
  Pooling pooling = Pooling::kCls;
  bool pooler = false;
  bool bias = true;
  std::string module = "classifier";
  std::string pooler_module = "pooler.dense";  // a checkpoint may have the family's prefix
  bool pooler_bias = true;
  PoolerActivation activation = PoolerActivation::kTanh;
  std::string norm_module = {};         // empty for none; has a bias if config.norm has one
  ScoreScale scale = ScoreScale::kRaw;  // of requests that state none
  std::vector<std::string> names = {};  // [labels], or empty if labels have no names
  // The only score comes from the head of the model instead of `module`.
  std::optional<LogitScore> logits = {};
  // Whether its layers can be computed; an architecture that needs others is refused.
  bool supported = true;

  bool operator==(const ClassifierConfig&) const = default;
};

// The activation function of a dense layer after the pooling.
enum class DenseFunction { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };

// A dense layer of a head. Its weights are in the model.safetensors of `folder`, a folder within
// the model's; or in `file`, a file next to the model's weights; or, without both, in the model's
// weights.
struct DenseConfig {
  std::string folder = {};
  std::string file = {};
  std::string module = "linear";  // empty for tensors without a prefix
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  DenseFunction function = DenseFunction::kTanh;
};

// A head that reads the state of each token.
struct TokenHeadConfig {
  std::vector<DenseConfig> dense = {};  // in order
  int32_t first = 0;                    // the first position that it reads
};

// The token whose state stands for a label: its marker, or the first token of its text.
enum class LabelState { kMarker, kNext };
constexpr auto EnumNamesOf(LabelState) {
  using enum LabelState;
  return EnumNameTable<LabelState>({{kMarker, "marker"}, {kNext, "next"}});
}

// The layers that map the states of the labels: two dense layers; or a recurrent step and two dense
// layers; or a recurrent step, attention between the labels and three dense layers. See
// engine/rows/label_head.h.
enum class LabelHeadKind { kProjection, kRecurrent, kAttention };
constexpr auto EnumNamesOf(LabelHeadKind) {
  using enum LabelHeadKind;
  return EnumNameTable<LabelHeadKind>(
      {{kProjection, "projection"}, {kRecurrent, "recurrent"}, {kAttention, "attention"}});
}

// The division of texts into words. With kLinks, links, e-mail addresses and names after @ are
// words too, words are in lower case, and a full stop follows a text that does not end with a full
// stop, an exclamation mark or a question mark.
enum class WordKind { kPlain, kLinks };
constexpr auto EnumNamesOf(WordKind) {
  using enum WordKind;
  return EnumNameTable<WordKind>({{kPlain, "plain"}, {kLinks, "links"}});
}

// A head that finds labelled parts of a text. It reads the states of a row that has the labels,
// each after a marker, then a separator, and then the words of the text. Without a marker, a row
// has only the words, and another model (Model::labels) makes the vectors of labels.
struct ExtractionConfig {
  int64_t width = 0;  // of its states; if the model's have another width, a layer maps them
  int64_t lstm_layers = 0;
  int64_t max_width = 0;          // the most words of a part
  int64_t max_words = 0;          // the most words of a text
  std::string label_marker = {};  // empty if rows have no labels, as the separator
  std::string separator = {};
  LabelState label_state = LabelState::kMarker;
  std::vector<std::string> before_labels = {}, after_labels = {};
  std::string gate = {};  // empty for none
  LabelHeadKind label_head = LabelHeadKind::kProjection;
  WordKind words = WordKind::kPlain;
  bool label_by_label = false;  // whether a part only excludes parts of its own label

  bool labels_in_row() const { return !label_marker.empty(); }
};

// The use of a text: it is searched for, or it is found. Models may encode both differently.
enum class TextTask { kDocument, kQuery };
constexpr auto EnumNamesOf(TextTask) {
  using enum TextTask;
  return EnumNameTable<TextTask>({{kDocument, "document"}, {kQuery, "query"}});
}
inline constexpr std::span<const std::string_view> kTextTaskNames = kNamesOf<TextTask>;

// How the texts of a task become rows, and which tokens of them have a vector.
struct TaskConfig {
  std::string marker = {};   // a token that is inserted after the first one of a row, if any
  int64_t max_length = 0;    // the most tokens of a row; 0: the model's
  int64_t filled = 0;        // a shorter row is filled up to this many tokens; 0: not
  std::string filler = {};   // the token for this; empty: the tokenizer's mask token
  bool hides_filler = true;  // whether no token attends to the filler
  std::vector<std::string> without_vector = {};  // tokens that have no vector
  // The folder of the weights of terms, if the task's sparse embeddings are these weights.
  std::string term_table = {};

  bool operator==(const TaskConfig&) const = default;
};

// A text that a request may prepend to its texts.
struct NamedPrompt {
  std::string name;
  std::string text;
};

struct ServingConfig {
  Poolings pooling;
  std::vector<DenseConfig> dense;  // of the pooled states, in order
  bool normalize = false;
  // The head that makes the vectors of a row (multi-vector models), if there is one. `normalize`
  // applies to each vector.
  std::optional<TokenHeadConfig> vectors;
  bool mean_of_maxima = false;  // whether MaxSim is divided by the number of the query's vectors
  bool multi_vector = false;    // whether these vectors replace the embedding
  // The head that makes one number of each token, the weight of the token's id in a sparse
  // embedding.
  std::optional<TokenHeadConfig> term_weights;
  std::optional<ExtractionConfig> extraction;
  std::array<TaskConfig, CountEnumerators<TextTask>()> tasks;
  TextTask default_task = TextTask::kDocument;  // of requests that state none
  // Whether the files make a sparse embedding (SPLADE) from the logits, and how many times a
  // logarithm is applied to its weights.
  bool sparse = false;
  int sparse_logarithms = 1;
  std::vector<NamedPrompt> prompts;  // also of a family's own keys
  std::string default_prompt;  // the name of the prompt of requests that name none; may be empty
  bool pools_prompt = true;    // whether the tokens of a prompt count for the embedding
  std::string similarity;      // the comparison of embeddings that the files name; may be empty
  bool lower_case = false;     // whether texts are in lower case before they are encoded
  ClassifierConfig classifier;
  std::optional<PairFrame> frame;  // the text around a query and a document
  // The classifiers of a family's architectures for sequence and token classification, without
  // labels. They are read before the architecture is known; `classifier` is the one in use. An
  // adapter may have a classifier of its own, see AdapterHead.
  ClassifierConfig row_classifier, token_classifier;
  bool sentence_modules = false;  // whether a modules.json describes the use of the states
  // Whether modules.json or the key "embedding" states that the model makes embeddings.
  bool states_embedding = false;
  PositionAlignment alignment = PositionAlignment::kStart;
  std::optional<Truncation> truncate;  // kError if absent

  TaskConfig& Task(TextTask task) { return tasks[static_cast<size_t>(task)]; }
  const TaskConfig& Task(TextTask task) const { return tasks[static_cast<size_t>(task)]; }
  // Returns the prompt of this name, or nullptr.
  const NamedPrompt* FindPrompt(std::string_view name) const;
  // Returns the prompt that sentence-transformers puts before the texts of a task, by its names:
  // query; document, passage or corpus. Returns nullptr if there is none.
  const NamedPrompt* PromptOf(TextTask task) const;
};

inline constexpr int64_t kMaxLabels = 1 << 20;
// The `problem_type` of a classifier whose labels are independent.
inline constexpr char kMultiLabel[] = "multi_label_classification";

// A setting that the files of a model determine, such as {"pooling", "mean"}.
struct ModelSetting {
  std::string name, value;
};
// Returns the settings of a model, for operators: the direction of attention; the pooling and the
// normalisation of embeddings, if it makes any; the truncation; the prompt of requests that name
// none; and the parts of the files that are ignored, separated by "; ".
std::vector<ModelSetting> SettingsOf(const ModelConfig& config);
// Returns the settings of a model with another classifier, or without one.
std::vector<ModelSetting> SettingsOf(const ModelConfig& config, const ClassifierConfig& classifier);

// Reads the class of torch.nn that scales scores: Identity, Sigmoid or Softmax.
ScoreScale ReadScoreScale(ObjectReader& object, const std::string& key);

// Reads the labels, their names and the scale of their scores from a config.json of transformers.
// Hugging Face writes the names of the labels, except for two labels without names.
void ReadLabels(ObjectReader& root, ClassifierConfig& classifier);

// The items that an architecture classifies.
enum class ClassifierOf { kNothing, kRows, kTokens };

// Requires that `extensions` is the object "sluice" of `root`, and that the architecture was read
// into `config`, whose classifiers are the family's.
ServingConfig ReadServing(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config,
                          ClassifierOf classifier = ClassifierOf::kNothing);

}  // namespace sluice
