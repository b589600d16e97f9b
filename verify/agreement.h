// How well what a model computes in a faster precision agrees with what it computes in f32.
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

// What a model computes of one text.
struct TextOutputs {
  std::vector<double> logprobs;   // of each token after the first, if it is causal with a head
  std::vector<double> embedding;  // [hidden]
  // Those of a classifier, [labels], or [tokens, labels] if it is one of tokens.
  std::vector<double> scores;
  int64_t labels = 0;
};

struct Text {
  std::vector<int32_t> tokens;
  int64_t bytes = 0;                // 0 if it was given as tokens, or is a pair
  std::vector<int32_t> types = {};  // of each token; empty if all are 0
};

struct Agreement {
  int64_t texts = 0;
  // The next tokens of the texts.
  struct OfTokens {
    int64_t tokens = 0, bytes = 0;
    double largest = 0, mean = 0;   // difference of log-probabilities
    double bits_f32 = 0, bits = 0;  // of all tokens together
  };
  std::optional<OfTokens> tokens;
  // Embeddings: the cosine of the two of a text, and the nearest other texts of each.
  double mean_cosine = 0, least_cosine = 1;
  int64_t nearest = 0;           // how many are looked at
  double same_nearest = 0;       // the share of texts whose nearest are the same ones
  double nearest_in_common = 0;  // the mean share of the nearest that are the same
  struct OfLabels {
    int64_t labels = 0;            // of texts, or of all tokens
    int64_t flips = 0;             // those whose label of the largest score differs
    double largest = 0, mean = 0;  // difference of scores
  };
  std::optional<OfLabels> labels;
};

// Compares the outputs of the same texts. Requires equal sizes.
Agreement Compare(std::span<const Text> texts, std::span<const TextOutputs> f32,
                  std::span<const TextOutputs> faster);

// Returns what the model computes of each text, alone. Errors come from the backend.
absl::StatusOr<std::vector<TextOutputs>> ComputeOutputs(std::shared_ptr<const Model> model,
                                                        std::span<const Text> texts,
                                                        const CpuOptions& options);

// Reads the texts of a file, a line each. For a classifier of pairs, a tab divides the two texts of
// a line. A text that is longer than the model's longest sequence is cut. Errors name the file, and
// the line if it is one line's.
absl::StatusOr<std::vector<Text>> ReadTexts(const Model& model, const std::string& path);

}  // namespace sluice::verify
