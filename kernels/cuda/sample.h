// Scoring, top-k selection and sampling of rows of logits, all in one kernel with a block per row.
// kernels/sampling.h defines the fields of a draw; results agree with it up to the rounding of the
// weights.
//
// Weights exp((x - max) / temperature) are integers in units of 2^-40, so that their sums do not
// depend on the order; tokens with smaller weights are never drawn. A block copies its row to
// shared memory if there is room, so it is read once; 227 KiB have room for 50,000 logits. If top_k
// keeps up to 1,024 tokens, these are sorted in shared memory and drawn from there. Otherwise
// nothing is sorted; bisection finds the end of the nucleus and the drawn token
// (kernels/cuda/select.h). A row with edits is drawn from an edited copy, so that its reported
// values are unedited.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows.h"
#include "kernels/sampling.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxLogits = 1 << 22;  // columns, so that sums of weights fit 63 bits

// Changes to a row's logits before its token is drawn: the same operations in the same order as
// LogitEdits in kernels/sampling.h. The lists are on the device. Each has distinct tokens in [0,
// n); a list with a count of 0 is not read.
struct DrawEdits {
  const SeenToken* seen;
  const TokenBias* bias;
  const int32_t* banned;
  const int32_t* allowed;  // ascending; a count of 0 allows all
  int32_t seen_count;
  int32_t bias_count;
  int32_t banned_count;
  int32_t allowed_count;
  float repetition;  // > 0
  float presence;
  float frequency;
};

// One sampled row.
struct SampleRequest {
  SampleParams params;
  int32_t target;                    // in [0, n) to score this token; -1 to draw one
  int32_t num_top;                   // number of candidates to report, <= n and <= max_top
  const DrawEdits* edits = nullptr;  // on the device, nullptr without edits or with a target
};

struct SampleOutcome {
  // The target or the drawn token. It is -1 if the row is not finite before or after the edits: it
  // holds a NaN or a +inf, or only -inf.
  int32_t token;
  float logprob;  // of the full distribution at temperature 1, before edits; NaN if not finite
};

struct SampleArgs {
  const float* logits;            // [rows, n], rows `stride` apart
  int32_t n;                      // 1 to kMaxLogits
  int64_t stride;                 // >= n
  const SampleRequest* requests;  // [rows]
  LiveRows rows;
  int32_t max_top;  // 0 if no row has candidates
  // [rows, n]; used by rows with edits, and by rows with more than 1,024 reported candidates.
  uint64_t* scratch;
  const int32_t* first;     // the place of the first row's outcome; nullptr means 0
  SampleOutcome* outcomes;  // of the rows, one after another
  // [rows, max_top], before edits, in descending order, equal logits by ascending index. Entries
  // beyond num_top, and rows whose logits are not finite, stay unchanged.
  int32_t* top_ids;
  float* top_logprobs;
  float* top_scores;  // the logits
};

void Sample(Stream& stream, const SampleArgs& args);

}  // namespace sluice::kernels::cuda
