#include "verify/agreement.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/rows/row_states.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::verify {
namespace {

constexpr int64_t kNearest = 10;
constexpr size_t kMaxTexts = 100'000;

// Gathers the differences of pairs of values.
struct Differences {
  double largest = 0, sum = 0;
  int64_t count = 0;

  void Add(double a, double b) {
    largest = std::max(largest, std::abs(a - b));
    sum += std::abs(a - b);
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

double Dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Returns the embeddings, each at length 1 unless it is zero.
std::vector<std::vector<double>> Normalized(std::span<const TextOutputs> outputs) {
  std::vector<std::vector<double>> all;
  for (const TextOutputs& each : outputs) {
    std::vector<double>& embedding = all.emplace_back(each.embedding);
    const double length = std::sqrt(Dot(embedding, embedding));
    for (double& value : embedding) value /= length > 0 ? length : 1;
  }
  return all;
}

// Returns the indices of the `count` texts nearest to `text`, ascending. Of equally near texts, a
// lower index counts as nearer.
std::vector<size_t> NearestTo(size_t text, const std::vector<std::vector<double>>& embeddings,
                              int64_t count) {
  std::vector<std::pair<double, size_t>> others;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    if (i != text) others.emplace_back(-Dot(embeddings[text], embeddings[i]), i);
  }
  std::partial_sort(others.begin(), others.begin() + count, others.end());
  std::vector<size_t> nearest;
  for (int64_t i = 0; i < count; ++i) nearest.push_back(others[i].second);
  std::sort(nearest.begin(), nearest.end());
  return nearest;
}

void CompareEmbeddings(std::span<const TextOutputs> f32, std::span<const TextOutputs> faster,
                       Agreement* agreement) {
  const auto texts = std::ssize(f32);
  const std::vector<std::vector<double>> a = Normalized(f32), b = Normalized(faster);
  agreement->nearest = std::clamp<int64_t>(texts - 1, 0, kNearest);
  double cosines = 0, same = 0, common = 0;
  for (int64_t i = 0; i < texts; ++i) {
    const double cosine = Dot(a[i], b[i]);
    cosines += cosine;
    agreement->least_cosine = std::min(agreement->least_cosine, cosine);
    if (agreement->nearest == 0) continue;
    const std::vector<size_t> of_a = NearestTo(i, a, agreement->nearest);
    const std::vector<size_t> of_b = NearestTo(i, b, agreement->nearest);
    std::vector<size_t> both;
    std::ranges::set_intersection(of_a, of_b, std::back_inserter(both));
    same += of_a == of_b ? 1 : 0;
    common += static_cast<double>(both.size()) / static_cast<double>(agreement->nearest);
  }
  agreement->mean_cosine = cosines / static_cast<double>(texts);
  agreement->same_nearest = same / static_cast<double>(texts);
  agreement->nearest_in_common = common / static_cast<double>(texts);
}

// Counts the labels, and the labels that differ.
void CompareLabels(const TextOutputs& f32, const TextOutputs& faster, Agreement::OfLabels* labels) {
  const auto label = [labels = f32.labels](const std::vector<double>& scores, int64_t first) {
    const auto begin = scores.begin() + first;
    return std::max_element(begin, begin + labels) - begin;
  };
  for (int64_t first = 0; first < std::ssize(f32.scores); first += f32.labels) {
    ++labels->labels;
    labels->flips += label(f32.scores, first) != label(faster.scores, first) ? 1 : 0;
  }
}

// Computes texts one after another in a slot of its own.
class TextRunner {
 public:
  static absl::StatusOr<TextRunner> Make(std::shared_ptr<const Model> model, int32_t longest,
                                         const CpuOptions& options) {
    TextRunner runner(std::move(model));
    SLUICE_ASSIGN_OR_RETURN(runner.backend_, MakeCpuBackend(options));
    SLUICE_ASSIGN_OR_RETURN(runner.executable_, runner.backend_->Load(runner.model_));
    const Bucket bucket = {longest, 1};
    SLUICE_ASSIGN_OR_RETURN(runner.plan_, runner.executable_->Prepare(bucket));
    SLUICE_ASSIGN_OR_RETURN(runner.slot_, runner.executable_->CreateSlot(
                                              bucket, MaxPages(bucket, kernels::kPageTokens)));
    return runner;
  }

  absl::StatusOr<TextOutputs> Run(const Text& text) {
    const std::vector<int32_t>& tokens = text.tokens;
    const ModelConfig& config = model_->config;
    const auto length = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> pages(slot_->pages());
    std::iota(pages.begin(), pages.end(), 0);
    StepSequence step{0, length, tokens.data(), pages.data()};
    step.type_count = static_cast<int32_t>(std::ssize(text.types));
    step.types = text.types.data();
    if (config.serving.alignment == PositionAlignment::kEnd) {
      step.position_offset = static_cast<int32_t>(config.max_positions) - length;
    }
    std::vector<kernels::SampleResult> results(tokens.size());
    std::vector<SampledRow> sampled;
    for (int32_t i = 0; model_->generates() && i + 1 < length; ++i) {
      sampled.push_back({.position = i, .target = tokens[i + 1], .result = &results[i]});
    }
    Request request;
    const auto spec = std::make_shared<RequestSpec>();
    spec->model = model_;
    spec->states.pooling = config.serving.pooling;
    spec->lengths = {length};
    request.spec = spec;
    request.outputs = kOutputEmbedding;
    Reply reply;
    reply.embedding.resize(EmbeddingSize(*spec));
    const ClassifierConfig& classifier = config.serving.classifier;
    if (model_->classifier && classifier.of_tokens) {
      request.outputs |= kOutputTokenScores;
      reply.token_scores.resize(length * classifier.labels);
    } else if (model_->classifier) {
      request.outputs |= kOutputScores;
      reply.scores.resize(classifier.labels);
    }
    RowStates pooled(request, length);
    std::vector<RowStates::Positions> wanted;
    pooled.AppendWanted(0, length, &wanted);
    std::vector<double> sums(wanted.size() * config.hidden_size);
    std::vector<StateSum> states;
    for (size_t i = 0; i < wanted.size(); ++i) {
      states.push_back({.sequence = 0,
                        .position = wanted[i].first,
                        .out = sums.data() + i * config.hidden_size,
                        .count = wanted[i].count});
    }
    StepBatch batch(length, 1, static_cast<int32_t>(config.max_positions), kernels::kPageTokens,
                    static_cast<int32_t>(config.input_width), config.padding_token);
    batch.Assign({&step, 1}, sampled, executable_->row_order(), states);
    SLUICE_RETURN_IF_ERROR(executable_->Replay(*plan_, *slot_, batch));
    if (!pooled.Take(wanted, sums, Undivided) || !pooled.Finish(0, &reply, Undivided)) {
      return absl::OutOfRangeError("the model's states are not finite");
    }
    TextOutputs outputs;
    for (size_t i = 0; i < sampled.size(); ++i) outputs.logprobs.push_back(results[i].logprob);
    outputs.embedding.assign(reply.embedding.begin(), reply.embedding.end());
    const std::vector<float>& scores = classifier.of_tokens ? reply.token_scores : reply.scores;
    outputs.labels = classifier.labels;
    outputs.scores.assign(scores.begin(), scores.end());
    return outputs;
  }

 private:
  explicit TextRunner(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Slot> slot_;
};

absl::StatusOr<std::vector<int32_t>> TokensOf(const Model& model, const std::string& line) {
  if (model.tokenizer != nullptr) return model.tokenizer->Encode(line);
  std::vector<int32_t> tokens;
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    int32_t& token = tokens.emplace_back();
    if (absl::SimpleAtoi(word, &token) && token >= 0 && token < model.config.vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("is not a list of token ids in [0, ",
                                                   model.config.vocab_size - 1,
                                                   "]; the model has no tokenizer"));
  }
  return tokens;
}

// Reads a pair of texts. If it is too long, the longer text is cut, or both to one length.
absl::StatusOr<Text> PairOf(const Model& model, std::string_view first, std::string_view second) {
  const TextTemplate& row = *model.tokenizer->templates().pair;
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> a,
                          model.tokenizer->EncodeBare(first, Tokenizer::kNoLimit));
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> b,
                          model.tokenizer->EncodeBare(second, Tokenizer::kNoLimit));
  const int64_t most = model.config.max_positions - row.specials();
  while (std::ssize(a) + std::ssize(b) > std::max<int64_t>(most, 0)) {
    (a.size() > b.size() ? a : b).pop_back();
  }
  const std::span<const int32_t> texts[] = {a, b};
  TypedTokens typed;
  row.Append(texts, &typed);
  Text text = {.tokens = std::move(typed.ids)};
  if (model.config.token_types > 1) text.types = std::move(typed.types);
  return text;
}

// Returns the text of a line, which is a pair if a tab divides it and the model classifies pairs.
absl::StatusOr<Text> TextOf(const Model& model, const std::string& line) {
  const size_t tab = line.find('\t');
  const ServingConfig& serving = model.config.serving;
  const bool of_rows = model.classifier && !serving.classifier.of_tokens;
  const bool pairs = tab != std::string::npos && of_rows && model.tokenizer != nullptr;
  const std::string_view first = std::string_view(line).substr(0, tab);
  const std::string_view second = pairs ? std::string_view(line).substr(tab + 1) : "";
  if (pairs && !serving.frame && model.tokenizer->templates().pair) {
    return PairOf(model, first, second);
  }
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<int32_t> tokens,
      pairs && serving.frame
          ? model.tokenizer->EncodeBare(serving.frame->Text({.query = first, .document = second}),
                                        Tokenizer::kNoLimit)
          : TokensOf(model, line));
  Text text = {.tokens = std::move(tokens), .bytes = std::ssize(line)};
  if (std::ssize(text.tokens) > model.config.max_positions) {
    text.tokens.resize(model.config.max_positions);
    if (model.tokenizer != nullptr)
      text.bytes = std::ssize(model.tokenizer->DecodeBytes(text.tokens));
  }
  if (model.tokenizer == nullptr) text.bytes = 0;
  return text;
}

}  // namespace

absl::StatusOr<std::vector<Text>> ReadTexts(const Model& model, const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  std::vector<Text> texts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && texts.size() < kMaxTexts; ++number) {
    absl::StatusOr<Text> text = TextOf(model, line);
    if (!text.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": line ", number, ": ", text.status().message()));
    }
    if (!line.empty() && !text->tokens.empty()) texts.push_back(*std::move(text));
  }
  if (texts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no text"));
  return texts;
}

Agreement Compare(std::span<const Text> texts, std::span<const TextOutputs> f32,
                  std::span<const TextOutputs> faster) {
  SLUICE_CHECK(texts.size() == f32.size() && f32.size() == faster.size() && !texts.empty());
  Agreement agreement;
  agreement.texts = std::ssize(texts);
  Differences logprobs, scores;
  Agreement::OfTokens tokens;
  Agreement::OfLabels labels;
  bool bytes_known = true;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < f32[i].logprobs.size(); ++j) {
      logprobs.Add(f32[i].logprobs[j], faster[i].logprobs[j]);
      tokens.bits_f32 -= f32[i].logprobs[j] / std::numbers::ln2;
      tokens.bits -= faster[i].logprobs[j] / std::numbers::ln2;
    }
    tokens.bytes += texts[i].bytes;
    bytes_known = bytes_known && texts[i].bytes > 0;
    for (size_t j = 0; j < f32[i].scores.size(); ++j)
      scores.Add(f32[i].scores[j], faster[i].scores[j]);
    CompareLabels(f32[i], faster[i], &labels);
  }
  if (logprobs.count > 0) {
    tokens.tokens = logprobs.count;
    tokens.largest = logprobs.largest;
    tokens.mean = logprobs.mean();
    if (!bytes_known) tokens.bytes = 0;
    agreement.tokens = tokens;
  }
  if (scores.count > 0) {
    labels.largest = scores.largest;
    labels.mean = scores.mean();
    agreement.labels = labels;
  }
  CompareEmbeddings(f32, faster, &agreement);
  return agreement;
}

absl::StatusOr<std::vector<TextOutputs>> ComputeOutputs(std::shared_ptr<const Model> model,
                                                        std::span<const Text> texts,
                                                        const CpuOptions& options) {
  int32_t longest = 1;
  for (const Text& text : texts) {
    longest = std::max(longest, static_cast<int32_t>(text.tokens.size()));
  }
  SLUICE_ASSIGN_OR_RETURN(TextRunner runner, TextRunner::Make(std::move(model), longest, options));
  std::vector<TextOutputs> outputs;
  outputs.reserve(texts.size());
  for (const Text& text : texts) {
    SLUICE_ASSIGN_OR_RETURN(TextOutputs of_text, runner.Run(text));
    outputs.push_back(std::move(of_text));
  }
  return outputs;
}

}  // namespace sluice::verify
