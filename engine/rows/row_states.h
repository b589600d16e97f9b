// The results that a request wants from the states behind the last norm of one of its prompts: the
// embedding, the scores of the classifier and those of its candidates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"

namespace sluice {

// Pools states by summing them in double, in the order of positions, each of which counts once. So
// the result has the same bits however the prompt was cut and however often parts of it were
// computed.
class StatePool {
 public:
  StatePool(Pooling pooling, int32_t length, int64_t width);

  bool Wants(int32_t position) const;
  // Returns whether it pools several states, and has none of them yet.
  bool WantsAll() const { return count_ > 1 && added_ == 0; }
  // Adds the sum of the states of `count` positions from the next one that is wanted on. Requires
  // that it is the first sum or that of one position.
  void Add(std::span<const double> sum, int32_t count);
  // Returns the mean of the added states. Requires complete(); called once.
  std::span<const double> Mean();
  bool complete() const { return added_ == count_; }

 private:
  const int32_t first_, count_;  // the positions to pool
  int32_t added_ = 0;
  std::vector<double> sum_;
};

class RowStates {
 public:
  static bool Wanted(const Request& request);
  // Returns the most memory of one row.
  static int64_t Bytes(const Request& request);

  // `request` outlives it and wants states; `length` is the length of the prompt.
  RowStates(const Request& request, int32_t length);

  // The states of consecutive positions, whose sum is wanted.
  struct Positions {
    int32_t first, count;
    bool operator==(const Positions&) const = default;
  };
  // Appends the sums that are wanted of a step that computes the positions [begin, end).
  void AppendWanted(int32_t begin, int32_t end, std::vector<Positions>* wanted) const;
  // Returns whether only the last position matters, so that no other state need be computed.
  bool OnlyLast() const { return only_last_; }
  // Takes a sum that was wanted when its step was laid out, in the order of AppendWanted. Returns
  // false if it is not finite.
  bool Take(const Positions& positions, std::span<const double> sum);
  // Writes the results of row `row` of the request to its reply, after the last position. Later
  // calls, for a prompt that is computed again, change nothing. Returns false if a result is not
  // finite.
  bool Finish(int32_t row, Reply* reply);

 private:
  bool WriteEmbedding(int32_t row, Reply* reply);
  bool WriteScores(int32_t row, Reply* reply);
  bool WriteCandidates(int32_t row, Reply* reply);

  bool Wants(int32_t position, bool all_summed) const;

  const Request& request_;
  const int32_t length_;
  bool only_last_ = true;
  bool finished_ = false;
  std::optional<StatePool> embedding_, classified_, last_;  // empty if not wanted
};

}  // namespace sluice
