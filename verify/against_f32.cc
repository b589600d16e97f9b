#include "verify/against_f32.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace sluice::verify {
namespace {

// Returns InvalidArgument unless both models take the same texts and have outputs of the same
// sizes.
absl::Status CheckComparable(const Model& model, const Model& reference) {
  const ModelConfig &a = model.config, &b = reference.config;
  const std::tuple<absl::string_view, int64_t, int64_t> sizes[] = {
      {"number of inputs of token ids", a.embeds_ids(), b.embeds_ids()},
      {"vocab_size", a.vocab_size, b.vocab_size},
      {"max_positions", a.max_positions, b.max_positions},
      {"token_types", a.token_types, b.token_types},
      {"size of embeddings", a.embedding_size(), b.embedding_size()},
      {"number of labels", a.serving.classifier.labels, b.serving.classifier.labels},
      {"number of classifiers of tokens", a.serving.classifier.of_tokens,
       b.serving.classifier.of_tokens},
      {"number of heads for next tokens", model.generates(), reference.generates()}};
  for (const auto& [what, wanted, found] : sizes) {
    if (wanted == found) continue;
    return absl::InvalidArgumentError(absl::StrCat("its ", what, " is ", found, ", not ", wanted));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Report(const Agreement& agreement) {
  std::string text;
  if (agreement.tokens) {
    const Agreement::OfTokens& of = *agreement.tokens;
    absl::StrAppendFormat(
        &text, "log-probabilities of %d next tokens: largest difference %.3g, mean %.3g\n",
        of.tokens, of.largest, of.mean);
    const auto count = static_cast<double>(of.tokens);
    const double ratio = std::exp2((of.bits - of.bits_f32) / count);
    absl::StrAppendFormat(&text, "perplexity: %.6g, in f32 %.6g (%.5f times)\n",
                          std::exp2(of.bits / count), std::exp2(of.bits_f32 / count), ratio);
    if (of.bytes > 0) {
      const auto bytes = static_cast<double>(of.bytes);
      absl::StrAppendFormat(&text, "bits per byte: %.5f, in f32 %.5f (%+.5f)\n", of.bits / bytes,
                            of.bits_f32 / bytes, (of.bits - of.bits_f32) / bytes);
    }
  }
  absl::StrAppendFormat(&text, "embeddings of %d texts: mean cosine %.6f, least %.6f\n",
                        agreement.texts, agreement.mean_cosine, agreement.least_cosine);
  if (agreement.nearest > 0) {
    absl::StrAppendFormat(
        &text, "nearest %d texts of each: the same for %.1f %% of them, %.2f %% in common\n",
        agreement.nearest, 100 * agreement.same_nearest, 100 * agreement.nearest_in_common);
  }
  if (agreement.labels) {
    absl::StrAppendFormat(&text, "labels: %d of %d differ; scores by at most %.3g, mean %.3g\n",
                          agreement.labels->flips, agreement.labels->labels,
                          agreement.labels->largest, agreement.labels->mean);
  }
  return text;
}

nlohmann::json ReportJson(const Agreement& agreement) {
  nlohmann::json json = {
      {"texts", agreement.texts},
      {"embeddings",
       {{"mean_cosine", agreement.mean_cosine}, {"least_cosine", agreement.least_cosine}}}};
  if (agreement.nearest > 0) {
    json["nearest_texts"] = {{"compared", agreement.nearest},
                             {"same", agreement.same_nearest},
                             {"in_common", agreement.nearest_in_common}};
  }
  if (const auto& tokens = agreement.tokens) {
    const auto count = static_cast<double>(tokens->tokens);
    json["next_tokens"] = {{"tokens", tokens->tokens},
                           {"bytes", tokens->bytes},
                           {"largest_difference", tokens->largest},
                           {"mean_difference", tokens->mean},
                           {"perplexity", std::exp2(tokens->bits / count)},
                           {"perplexity_f32", std::exp2(tokens->bits_f32 / count)}};
  }
  if (const auto& labels = agreement.labels) {
    json["labels"] = {{"labels", labels->labels},
                      {"differ", labels->flips},
                      {"largest_difference", labels->largest},
                      {"mean_difference", labels->mean}};
  }
  return json;
}

absl::StatusOr<Agreement> VerifyAgainstF32(const std::string& model_directory,
                                           const std::string& text, const CpuOptions& options,
                                           const ModelOptions& model,
                                           const std::string& reference) {
  const std::string& stored_in = reference.empty() ? model_directory : reference;
  const auto named = [](const std::string& directory, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(directory, ": ", status.message()));
  };
  const auto faster = LoadModel("verified", 1, model_directory, model);
  if (!faster.ok()) return named(model_directory, faster.status());
  const auto stored = LoadModel("verified", 1, stored_in,
                                {.quantization = QuantizationConfig(), .kv_dtype = KvType::kF32});
  if (!stored.ok()) return named(stored_in, stored.status());
  if (!(*stored)->config.embeds_ids()) {
    return named(stored_in,
                 absl::InvalidArgumentError("takes no token ids, so texts cannot be used"));
  }
  if (AnyQuantized(**stored)) {
    return named(stored_in, absl::InvalidArgumentError(
                                "is stored quantised, so it has no f32 weights to compare "
                                "with; name the original model with --reference"));
  }
  if (const absl::Status status = CheckComparable(**faster, **stored); !status.ok()) {
    return named(stored_in, status);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Text> texts, ReadTexts(**faster, text));
  CpuOptions in_f32 = options;
  in_f32.profile = "f32";
  const auto expected = ComputeOutputs(*stored, texts, in_f32);
  if (!expected.ok()) return named(stored_in, expected.status());
  const auto found = ComputeOutputs(*faster, texts, options);
  if (!found.ok()) return named(model_directory, found.status());
  return Compare(texts, *expected, *found);
}

}  // namespace sluice::verify
