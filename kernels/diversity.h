// Diverse selection: from candidates with scores and vectors, chooses the best combination.
//
// It maximises, greedily, the log-probability of a determinantal point process (Kulesza and Taskar
// 2012, arXiv 1207.6083) with the trade-off of Chen, Zhang and Zhou (NeurIPS 2018, arXiv
// 1709.05135):
//
//   (1 - d) sum of s_i + d log det S_Y   over the chosen candidates i in Y
//   S_ij = (1 + cos(v_i, v_j)) / 2, S_ii = 1
//
// with the diversity d in [0, 1], the scores s (logits) and the vectors v of the candidates. At
// d = 1/2 this is the process of the kernel sqrt(p_i) S_ij sqrt(p_j), where p_i is proportional to
// exp(s_i). A vector of zeros has a cosine of 0 with every other.
//
// Each step chooses the candidate of the largest gain
//
//   g_i = (1 - d) s_i + d log max(r_i, kMinRest)
//
// where r_i is the part of S_ii that the chosen candidates do not explain. r and the rows c of the
// Cholesky factor of S_Y are updated at each step: once j is chosen,
//
//   e_i = (S_ji - sum over earlier rows c of c_j c_i) / sqrt(r_j),  r_i -= e_i^2
//
// and e is the next row. A candidate with r_j < kMinRest adds no row. Gains are compared as floats;
// of equal ones the first candidate is chosen. So d = 0 keeps the order of the scores, and
// candidates that the chosen ones fully explain follow in the order of their scores. A score of
// -inf is chosen after all others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sluice::kernels {

inline constexpr double kMinRest = 1e-10;

// The most tokens in a diverse top list, and the most tokens that it is chosen from.
inline constexpr int32_t kMaxDiverse = 128, kMaxDiversePool = 512;

// Returns the number of best tokens, of n, that `count` diverse ones are chosen from.
constexpr int32_t DiversePool(int32_t count, int32_t n) {
  return std::min({4 * count, kMaxDiversePool, n});
}

// Returns the gain of a candidate that is not chosen yet.
inline float DiverseGain(float score, double rest, double diversity) {
  if (diversity == 0 || std::isinf(score)) return score;
  const double logarithm = std::log(std::max(rest, kMinRest));
  return static_cast<float>((1 - diversity) * score + diversity * logarithm);
}

}  // namespace sluice::kernels
