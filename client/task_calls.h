// Calls a model for texts, at most 128 in a request, and collects the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/entities.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// The rows of the output `embedding` or `scores`, and the names in `label` if the model has them.
struct TextRows {
  std::vector<std::vector<float>> values;
  std::vector<std::string> labels;  // one per score, or empty
};

// A call for the default outputs of `request`, with `texts` as rows. With a `partner`, the rows are
// pairs: the partner is the first text of each if `partner_first`, else the second. Returns
// InvalidArgument if the answer lacks `output`.
struct TextCall {
  inference::ModelInferRequest request;  // the model and the parameters
  std::string output;                    // embedding, scores or maxsim
  const std::string* partner = nullptr;
  bool partner_first = true;
};
absl::StatusOr<TextRows> CallForTexts(const Connection& connection, const TextCall& call,
                                      const std::vector<std::string>& texts);

// A term that a masked language model gives to a text. The terms of a text are sorted by weight,
// the largest first.
struct Term {
  int32_t id;
  float weight;
};
absl::StatusOr<std::vector<std::vector<Term>>> SparseTerms(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts);

// Returns the score of each document for the query: the scores of pairs for a cross-encoder, MaxSim
// for a multi-vector model, else cosines of embeddings.
absl::StatusOr<std::vector<double>> Relevances(const Connection& connection,
                                               const inference::ModelInferRequest& request,
                                               const std::string& query,
                                               const std::vector<std::string>& documents);

// Returns the scores of each text, or of its pair with `pair`. They are probabilities unless
// `request` states an activation or the model computes a regression.
absl::StatusOr<TextRows> Classify(const Connection& connection,
                                  const inference::ModelInferRequest& request,
                                  const std::vector<std::string>& texts,
                                  const std::optional<std::string>& pair);

// Returns the tokens of each text with the labels from the model. Scores are probabilities unless
// `request` sets another form.
absl::StatusOr<std::vector<std::vector<LabelledToken>>> LabelTokens(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts);

// Returns the parts of each text that have one of the labels in the parameters of `request`.
absl::StatusOr<std::vector<std::vector<Entity>>> ExtractEntities(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts);

}  // namespace sluice::client
