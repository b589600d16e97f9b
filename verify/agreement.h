// Measures how well a model's outputs in a faster precision agree with its outputs in f32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/options.h"

namespace sluice::verify {

// A model's outputs for one text.
struct TextOutputs {
  std::vector<double> logprobs;   // of each token after the first, if it is causal with a head
  std::vector<double> embedding;  // [hidden]
  // The scores of a classifier: [labels], or [tokens, labels] if it classifies tokens.
  std::vector<double> scores;
  int64_t labels = 0;
};

struct Text {
  std::vector<int32_t> tokens;
  int64_t bytes = 0;                // 0 if the text was given as tokens, or is a pair
  std::vector<int32_t> types = {};  // of each token; empty if all are 0
};

struct Agreement {
  int64_t texts = 0;
  // The next tokens of the texts.
  struct OfTokens {
    int64_t tokens = 0, bytes = 0;
    double largest = 0, mean = 0;   // difference of log-probabilities
    double bits_f32 = 0, bits = 0;  // of all tokens
  };
  std::optional<OfTokens> tokens;
  // Embeddings: the cosine of a text's two embeddings, and the texts nearest to each text.
  double mean_cosine = 0, least_cosine = 1;
  int64_t nearest = 0;           // the number of nearest texts that are compared
  double same_nearest = 0;       // the share of texts whose nearest texts are the same
  double nearest_in_common = 0;  // the mean share of nearest texts that are the same
  struct OfLabels {
    int64_t labels = 0;            // of all texts, or of all tokens
    int64_t flips = 0;             // where the label with the largest score differs
    double largest = 0, mean = 0;  // difference of scores
  };
  std::optional<OfLabels> labels;
};

// Compares the outputs of the same texts. Requires equal sizes.
Agreement Compare(std::span<const Text> texts, std::span<const TextOutputs> f32,
                  std::span<const TextOutputs> faster);

// Returns the outputs for each text, computed separately. Errors come from the backend.
absl::StatusOr<std::vector<TextOutputs>> ComputeOutputs(std::shared_ptr<const Model> model,
                                                        std::span<const Text> texts,
                                                        const CpuOptions& options);

// Reads the texts of a file, one per line. For a classifier of pairs, a tab separates the two texts
// of a line. A text is cut at the model's longest sequence. Errors name the file, and the line if
// only one line is wrong.
absl::StatusOr<std::vector<Text>> ReadTexts(const Model& model, const std::string& path);

}  // namespace sluice::verify
