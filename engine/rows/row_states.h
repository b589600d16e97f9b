// What a request makes of the states behind the last norm of one of its prompts: the embedding, the
// classifier's scores and those of its candidates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"

namespace sluice {

// Sums in double and in the order of positions, each of which counts once: so the result has the same
// bits however the prompt was cut and however often parts of it were computed.
class StatePool {
 public:
  StatePool(Pooling pooling, int32_t length, int64_t width);

  bool Wants(int32_t position) const;
  void Add(std::span<const float> state);  // of the position that it wants
  std::span<const double> Mean();          // complete; of what was added
  bool complete() const { return added_ == count_; }

 private:
  const int32_t first_, count_;  // the positions that it pools
  int32_t added_ = 0;
  std::vector<double> sum_;
};

class RowStates {
 public:
  static bool Wanted(const Request& request);
  static int64_t Bytes(const Request& request);  // of one row, at most

  // `request` outlives it and wants states; `length` is that of the prompt.
  RowStates(const Request& request, int32_t length);

  // Of positions in ascending order.
  bool Wants(int32_t position) const;
  // No position but the last one matters, so that others need not be computed.
  bool OnlyLast() const { return only_last_; }
  // The state of a position that was wanted when its step was laid out. False: it is not finite.
  bool Take(int32_t position, std::span<const float> state);
  // After the last position: writes what row `row` of the request wants to its reply. Once; later
  // calls, of a prompt that is computed again, change nothing. False: a result is not finite.
  bool Finish(int32_t row, Reply* reply);

 private:
  bool WriteEmbedding(int32_t row, Reply* reply);
  bool WriteScores(int32_t row, Reply* reply);
  bool WriteCandidates(int32_t row, Reply* reply);

  const Request& request_;
  bool only_last_ = true;
  bool finished_ = false;
  std::optional<StatePool> embedding_, classified_, last_;  // what is wanted of these
};

}  // namespace sluice
