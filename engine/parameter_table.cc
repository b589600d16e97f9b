#include "engine/parameter_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr double kDayUs = 24.0 * 60 * 60 * 1'000'000;
constexpr std::string_view kScaleWords[] = {"none", "softmax", "sigmoid"};  // as ScoreScale
static_assert(std::size(kScaleWords) == static_cast<size_t>(ScoreScale::kLogSoftmax),
              "kLogSoftmax is the last one, and only for candidates");
constexpr std::string_view kCandidateScaleWords[] = {"none", "log_softmax"};

constexpr ModelBound kVocabulary{"vocab", [](const ModelConfig& c) { return c.vocab_size; }};
constexpr ModelBound kPositions{"max_positions",
                                [](const ModelConfig& c) { return c.max_positions; }};
constexpr ModelBound kEmbeddingSize{"d", [](const ModelConfig& c) { return c.embedding_size(); }};

#define FIELD(path) (+[](RequestSpec & spec) -> auto& { return spec.path; })

// The field is an enum whose values are in the order of the words.
#define WORD(path)                                                    \
  (+[](RequestSpec& spec, size_t word) {                              \
    spec.path = static_cast<std::decay_t<decltype(spec.path)>>(word); \
  })

void StoreCandidateScale(RequestSpec& spec, size_t word) {
  spec.states.candidates = word == 0 ? ScoreScale::kRaw : ScoreScale::kLogSoftmax;
}

void StorePooling(RequestSpec& spec, size_t word) {
  spec.states.pooling = static_cast<Pooling>(word);
}

constexpr ParameterInfo kTable[] = {
    {.name = "max_tokens",
     .field = FIELD(max_tokens),
     .range = {.model_max = &kPositions},
     .if_absent = "1, or 0 if no token output is requested",
     .help = "Most tokens that a row generates; 0: score only. Above 0 only for models that "
             "generate."},
    {.name = "min_tokens",
     .field = FIELD(stop.min_tokens),
     .range = {.model_max = &kPositions},
     .help = "Minimum number of generated tokens; at most max_tokens."},
    {.name = "temperature",
     .field = FIELD(sampling.temperature),
     // Division of logits by smaller values would overflow floats.
     .range = {.min = 1e-3, .max = 1e3, .zero_too = true},
     .default_means = "always the most likely token",
     .help = "Higher: more varied."},
    {.name = "top_k",
     .field = FIELD(sampling.top_k),
     .range = {.model_max = &kVocabulary},
     .default_means = "off",
     .help = "Sample among the k most likely tokens."},
    {.name = "top_p",
     .field = FIELD(sampling.top_p),
     .range = {.max = 1, .above_min = true},
     .default_means = "off",
     .help = "Sample among the most likely tokens that together have this probability."},
    {.name = "min_p",
     .field = FIELD(sampling.min_p),
     .range = {.max = 1},
     .default_means = "off",
     .help = "Drop tokens less likely than this share of the most likely one."},
    {.name = "typical_p",
     .field = FIELD(sampling.typical_p),
     .range = {.max = 1, .above_min = true},
     .default_means = "off",
     .help = "Locally typical sampling: sample among the tokens whose information is nearest to "
             "the expected information and that together have this probability."},
    {.name = "seed",
     .field = FIELD(sampling.seed),
     .if_absent = "drawn, and returned as the response parameter seed",
     .help = "Makes sampling repeatable."},
    {.name = "repetition_penalty",
     .field = FIELD(edits.repetition_penalty),
     .range = {.min = 0.01, .max = 100},
     .default_means = "off",
     .help = "Above 1: tokens of prompt and answer become less likely. Their logits x become x / r "
             "where x > 0, else x * r."},
    {.name = "presence_penalty",
     .field = FIELD(edits.presence_penalty),
     .range = {.min = -100, .max = 100},
     .default_means = "off",
     .help = "Subtracted from the logit of each token that the answer already contains."},
    {.name = "frequency_penalty",
     .field = FIELD(edits.frequency_penalty),
     .range = {.min = -100, .max = 100},
     .default_means = "off",
     .help = "Subtracted from the logit of a token for each time that the answer contains it."},
    {.name = "logit_bias",
     .field = FIELD(edits.bias),
     .range = {.max = kMaxBiasEntries},
     .if_absent = "none",
     .help =
         "Added to the logits of tokens: a number in [-100, 100], or null or \"-inf\" for a ban."},
    {.name = "allowed_token_ids",
     .field = FIELD(edits.allowed),
     .range = {.min = 1, .model_max = &kVocabulary},
     .if_absent = "all",
     .help = "Only these tokens are drawn."},
    {.name = "stop",
     .field = FIELD(stop.texts),
     .range = {.max = kMaxStopTexts},
     .if_absent = "none",
     .help = "The row ends before any of these texts, of 1 to 256 bytes each. Needs a tokenizer."},
    {.name = "stop_token_ids",
     .field = FIELD(stop.ids),
     .range = {.max = kMaxStopIds},
     .if_absent = "none",
     .help = "The row ends before one of these tokens."},
    {.name = "ignore_eos",
     .field = FIELD(stop.ignore_eos),
     .help = "Continue when the model would end; for benchmarks."},
    {.name = "num_top_logprobs",
     .field = FIELD(num_top),
     .range = {.model_max = &kVocabulary},
     .help = "Candidates to return for each generated token.",
     .client_name = "num_top"},
    {.name = "diversity",
     .field = FIELD(diversity),
     .range = {.max = 1},
     .default_means = "the best ones",
     .help = "Above 0: candidates that have high scores and differ from each other. The value is "
             "the weight of diversity against scores; 1 considers only diversity. They are chosen "
             "from 4 times the requested number of best tokens. At most 128 num_top_logprobs and "
             "512 candidate_ids per row."},
    {.name = "truncate",
     .field = WORD(truncate),
     .words = kTruncationNames,
     .if_absent = "the model's sluice.truncate; without it error",
     .help = "Whether a prompt that is too long is refused, or loses its first or its last tokens "
             "until it and max_tokens fit. The response parameter truncated_tokens is the number "
             "of tokens cut from all rows."},
    {.name = "window_overlap",
     .field = FIELD(window_overlap),
     .range = {.model_max = &kPositions},
     .default_means = "off",
     .help = "A text that is too long for a classifier is read in windows; neighbouring windows "
             "share this many tokens. The scores of a text are the means over its windows. A "
             "token has the scores from the window where it is farther from an end."},
    {.name = "pooling",
     .field = StorePooling,
     .words = kPoolingNames,
     .if_absent = "the model's; without it last if attention is causal, else mean",
     .help = "How the states of a prompt are combined into an embedding."},
    {.name = "normalize",
     .field = FIELD(states.normalize),
     .if_absent = "the model's; without it false",
     .help = "Scale embeddings to length 1."},
    {.name = "dimensions",
     .field = FIELD(states.dimensions),
     .range = {.min = 1, .model_max = &kEmbeddingSize},
     .if_absent = "all",
     .help = "Cuts embeddings to their first values, before they are normalised. For models "
             "trained for it (Matryoshka)."},
    {.name = "max_active_dims",
     .field = FIELD(states.max_active_dims),
     .range = {.min = 1, .max = kMostSparseTerms},
     .help = "Cuts sparse embeddings to their heaviest terms."},
    {.name = "spans",
     .field = FIELD(states.spans),
     .range = {.max = kMostSpans},
     .if_absent = "none",
     .help = "The parts of each row that have an embedding of their own, the mean of the states "
             "of their tokens (late chunking): for each row a list of [begin, end]. A token "
             "belongs to the part in which its text begins."},
    {.name = "span_unit",
     .field = WORD(states.span_unit),
     .words = kSpanUnitNames,
     .if_absent = "characters",
     .help = "What the numbers of spans count: the characters or bytes of text_input, or the "
             "tokens of a row with its special tokens."},
    {.name = "labels",
     .field = FIELD(extraction.labels),
     .range = {.max = kMaxExtractionLabels},
     .if_absent = "none",
     .help = "The labels of parts of a text to find, of 1 to 256 bytes each. For models that "
             "extract; they are part of each row's tokens, unless another model encodes them."},
    {.name = "threshold",
     .field = FIELD(extraction.threshold),
     .range = {.max = 1},
     .help = "Found parts have higher scores."},
    {.name = "overlap",
     .field = WORD(extraction.overlap),
     .words = kSpanOverlapNames,
     .if_absent = "flat",
     .help = "Whether found parts have no common word, or may also be within each other. Of parts "
             "that may not be returned together, the one with the highest score is returned."},
    {.name = "multi_label",
     .field = FIELD(extraction.multi_label),
     .help = "Whether the same part may be returned with several labels."},
    {.name = "task",
     .field = WORD(states.task),
     .words = kTextTaskNames,
     .if_absent = "the model's; without it document",
     .help = "The use of the texts, if the model encodes queries and documents differently: its "
             "markers, lengths and routes of the task apply, and so does a prompt that is named "
             "after the task, unless prompt_name is given."},
    {.name = "prompt_name",
     .field = FIELD(prompt_name),
     .if_absent = "the model's default_prompt_name; without it none",
     .help = "The name of the model's prompt to put before each text; an empty name means none."},
    {.name = "add_special_tokens",
     .field = FIELD(add_special_tokens),
     .help = "Whether the tokens of the tokenizer's template, such as bos, are put around each "
             "text. If false, the text itself must have those that the model needs, as the "
             "prompts of chat templates do."},
    {.name = "instruction",
     .field = FIELD(instruction),
     .range = {.max = 16384},
     .if_absent = "the prompt of prompt_name; without it the model's own",
     .help = "What a reranker that is a language model looks for, for example \"Find passages that "
             "answer the question\". An empty text stands for the model's own instruction. At most "
             "16,384 bytes."},
    {.name = "activation",
     .field = WORD(states.scores),
     .words = kScaleWords,
     .if_absent = "the model's; without it none",
     .help = "Applied to a classifier's scores, over a row's labels."},
    {.name = "candidate_activation",
     .field = StoreCandidateScale,
     .words = kCandidateScaleWords,
     .if_absent = "none",
     .help = "Applied to the candidates' scores, over a row's candidates."},
    {.name = "speculation",
     .field = FIELD(speculation),
     .help =
         "Whether the server may draft tokens of the answer if the model's configuration allows "
         "it (models[].speculation). Drafted tokens are checked, so this changes no result."},
    {.name = "prediction",
     .field = FIELD(prediction),
     .range = {.max = kMaxPredictionBytes},
     .if_absent = "none",
     .help = "A text that the answer probably repeats, such as a file to edit. Its tokens are "
             "drafted if the model's configuration allows it; this changes no result. At most "
             "65,536 bytes. Needs a tokenizer."},
    {.name = "priority",
     .field = FIELD(priority),
     .range = {.max = kPriorityLevels},
     .help = "1: the most urgent; 3: the least urgent; 0: the default."},
    {.name = "timeout",
     .field = FIELD(timeout_us),
     .range = {.max = kDayUs},
     .microseconds = true,
     .default_means = "none",
     .help = "Maximum time from arrival, at most a day. After it, or after the gRPC deadline if "
             "that is earlier, the request ends with DEADLINE_EXCEEDED."},
    {.name = "triton_enable_empty_final_response",
     .field = FIELD(empty_final_response),
     .help = "A request of a stream ends with an extra response without outputs.",
     .client_name = ""},
};

#undef WORD
#undef FIELD

// Indices into the table, by name.
constexpr auto kByName = [] {
  std::array<size_t, std::size(kTable)> order{};
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [](size_t a, size_t b) { return kTable[a].name < kTable[b].name; });
  return order;
}();

bool IsInteger(ParameterKind kind) {
  return kind == ParameterKind::kInteger || kind == ParameterKind::kDuration;
}

std::string NumberText(ParameterKind kind, double number) {
  if (IsInteger(kind)) return absl::StrCat(static_cast<int64_t>(number));
  return absl::StrCat(number);
}

// Writes the default of a number or a flag; returns "" for other fields.
struct DefaultWriter {
  RequestSpec& spec;

  std::string operator()(FieldOf<bool> field) const { return field(spec) ? "true" : "false"; }
  std::string operator()(StoreWord) const { return ""; }
  std::string operator()(FieldOf<std::string>) const { return ""; }
  template <typename T>
  std::string operator()(FieldOf<std::vector<T>>) const {
    return "";
  }
  template <typename T>
  std::string operator()(FieldOf<T> field) const {
    return absl::StrCat(field(spec));
  }
};

}  // namespace

ParameterKind ParameterInfo::kind() const {
  constexpr ParameterKind kKinds[] = {
      ParameterKind::kInteger, ParameterKind::kInteger, ParameterKind::kUnsigned,
      ParameterKind::kReal,    ParameterKind::kSwitch,  ParameterKind::kIds,
      ParameterKind::kBiases,  ParameterKind::kTexts,   ParameterKind::kWord,
      ParameterKind::kName,    ParameterKind::kSpans};
  static_assert(std::size(kKinds) == std::variant_size_v<ParameterField>);
  return microseconds ? ParameterKind::kDuration : kKinds[field.index()];
}

std::string ParameterInfo::RangeText() const {
  std::string max = NumberText(kind(), range.max);
  if (range.model_max != nullptr) max = std::string(range.model_max->name);
  return absl::StrCat(range.zero_too ? "0 or " : "", range.above_min ? "(" : "[",
                      NumberText(kind(), range.min), ", ", max, "]");
}

std::string ParameterInfo::DefaultText() const {
  if (!if_absent.empty()) return std::string(if_absent);
  RequestSpec spec;
  std::string text = std::visit(DefaultWriter{spec}, field);
  if (default_means.empty()) return text;
  return absl::StrCat(text, " (", absl::string_view(default_means.data(), default_means.size()),
                      ")");
}

std::span<const ParameterInfo> RequestParameters() { return kTable; }

const ParameterInfo* FindParameter(std::string_view name) {
  const auto found =
      std::lower_bound(kByName.begin(), kByName.end(), name,
                       [](size_t at, std::string_view wanted) { return kTable[at].name < wanted; });
  if (found == kByName.end() || kTable[*found].name != name) return nullptr;
  return &kTable[*found];
}

}  // namespace sluice
