// A draw from a row of logits, the same on every device: its parameters, the edits of the logits
// before it, and its result.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

// The parameters of one draw. A field at its default switches its filter off. The filters apply in
// this order: temperature, top_k, top_p (of the probability mass that top_k keeps), min_p,
// typical_p. Each keeps at least one token, and all except typical_p keep the most likely one. The
// draw inverts the cumulative distribution of the kept tokens: in descending order of probability
// if top_k (< n), top_p or typical_p is on, otherwise in index order.
//
// Locally typical sampling (Meister et al. 2022, arXiv 2202.00666): let p be the distribution after
// the other filters and H its entropy. typical_p keeps the tokens with |log p(i) + H| <= d, for the
// least d that keeps this share of the mass.
struct SampleParams {
  float temperature = 0.0f;  // >= 0; 0 means greedy and ignores the other filters
  int32_t top_k = 0;         // 0 means off
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1], relative to the most likely token
  float typical_p = 1.0f;    // (0, 1]
  uint64_t seed = 0;
  uint64_t token_index = 0;  // index of the generated token within its sequence
  uint32_t sample = 0;       // row within the request; makes the rows of one request differ
};

struct SeenToken {
  int32_t token;
  int32_t generated;  // number of times generated; 0 if only in the prompt
};
struct TokenBias {
  int32_t token;
  float bias;  // finite or -inf
};

// Changes to a row's logits before its token is drawn. The spans refer to the caller's memory;
// tokens are in [0, n). The edits apply in this order:
//   repetition: the logit x of each token seen becomes x / repetition if x > 0, otherwise
//               x * repetition (as in CTRL, arXiv 1909.05858)
//   presence, frequency: the logit of each token generated c > 0 times becomes
//               x - presence - c * frequency
//   bias: x + bias; a bias of -inf bans the token
//   banned, allowed: the logits of banned tokens and of all tokens not allowed become -inf
// Reported log-probabilities and candidates are computed before the edits. A banned token has
// probability 0, like any token whose logit is -inf, and counts among the top_k like these tokens.
// The cost is proportional to the number of edits. With `allowed`, the draw is made only among the
// allowed tokens.
struct LogitEdits {
  std::span<const SeenToken> seen = {};  // distinct; may be empty if there are no penalties
  float repetition = 1.0f;               // > 0
  float presence = 0.0f;
  float frequency = 0.0f;
  std::span<const TokenBias> bias = {};   // distinct
  std::span<const int32_t> banned = {};   // in addition to biases of -inf; distinct
  std::span<const int32_t> allowed = {};  // ascending, distinct; empty means all
};

struct SampleResult {
  // The drawn token, or -1 if the row is not finite before or after the edits: it holds a NaN or a
  // +inf, or only -inf.
  int32_t token;
  float logprob;  // of `token`, in the full distribution at temperature 1; NaN if not finite
};

}  // namespace sluice::kernels
