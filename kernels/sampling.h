// A draw from a row of logits, on every device: its parameters, the edits of the logits before it,
// and its result.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

// One draw. Fields at their defaults switch a filter off. Filters apply in this order: temperature,
// top_k, top_p (of the mass that top_k left), min_p, typical_p; each keeps at least one token, all
// but the last the most likely one. The draw inverts the cumulative distribution of what is left:
// in descending order of probability when top_k (< n), top_p or typical_p is on, else in index
// order.
//
// Locally typical sampling (Meister et al. 2022, arXiv 2202.00666): with p the distribution that
// the other filters left and H its entropy, typical_p keeps the tokens with |log p(i) + H| <= d,
// for the least d at which they hold this share of the mass.
struct SampleParams {
  float temperature = 0.0f;  // >= 0; 0: greedy, the other filters are ignored
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1], relative to the most likely token
  float typical_p = 1.0f;    // (0, 1]
  uint64_t seed = 0;
  uint64_t token_index = 0;  // index of the generated token within its sequence
  uint32_t sample = 0;       // row of the request, so that rows of one request differ
};

struct SeenToken {
  int32_t token;
  int32_t generated;  // times; 0: in the prompt only
};
struct TokenBias {
  int32_t token;
  float bias;  // finite or -inf
};

// Changes to a row's logits before its token is drawn; views of the caller's, tokens in [0, n). In
// this order:
//   repetition: of each token seen, a logit x > 0 becomes x / repetition, else x * repetition (as
//     in
//               CTRL, arXiv 1909.05858)
//   presence, frequency: of each token generated c > 0 times, x - presence - c * frequency
//   bias: x + bias; -inf bans the token
//   banned, allowed: the banned and all that are not allowed become -inf
// Log-probabilities and candidates that are reported are those before the edits. A banned token has
// probability 0, as any token of logit -inf, and counts among the top_k like these. Costs time in
// proportion to the edits; with `allowed`, the draw is made among these tokens alone.
struct LogitEdits {
  std::span<const SeenToken> seen = {};  // distinct; may be empty without penalties
  float repetition = 1.0f;               // > 0
  float presence = 0.0f;
  float frequency = 0.0f;
  std::span<const TokenBias> bias = {};   // distinct
  std::span<const int32_t> banned = {};   // beside those; distinct
  std::span<const int32_t> allowed = {};  // ascending, distinct; empty: all
};

struct SampleResult {
  // -1 when the row is not finite: a NaN, a +inf or nothing but -inf, in the model's logits or once
  // they are edited.
  int32_t token;
  float logprob;  // of `token`, full distribution at temperature 1; NaN when not finite
};

}  // namespace sluice::kernels
