// The results of a request from the states after the last norm of one of its prompts: the
// embedding, the scores of the classifier and of the candidates, and the results of single tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "engine/model/output_heads.h"
#include "engine/request.h"
#include "engine/rows/candidate_order.h"

namespace sluice {

// Pools states in double, in the order of positions; each position counts once. The result
// therefore has the same bits however the prompt is cut and however often parts of it are computed.
class StatePool {
 public:
  // Pools the positions from `first` to before `length`. Requires first < length.
  StatePool(Pooling pooling, int32_t first, int32_t length, int64_t width);

  int32_t first() const { return first_; }
  int32_t count() const { return count_; }
  bool Wants(int32_t position) const {
    return position >= first_ + added_ && position < first_ + count_;
  }
  // Returns whether the pool takes the largest value of each feature instead of a sum.
  bool largest() const { return pooling_ == Pooling::kMax; }
  // Returns whether the pool needs one sum over all of its states, and has no state yet.
  bool WantsSum() const { return sums_ && count_ > 1 && added_ == 0; }
  // Returns whether the pool needs its states one by one, and does not have all of them yet.
  bool WantsEach() const { return count_ > 1 && !complete() && !WantsSum(); }
  // Adds the sum of the states of the next `count` positions. Requires that it is the first sum or
  // that `count` is 1.
  void Add(std::span<const double> sum, int32_t count);
  // Returns the pooled result. Requires complete(). Called once, unless count() is 1.
  std::span<const double> Result();
  bool complete() const { return added_ == count_; }

 private:
  const Pooling pooling_;
  const bool sums_;              // whether the result is computed from a sum or from largest values
  const int32_t first_, count_;  // the positions to pool
  int32_t added_ = 0;
  double weight_ = 0;  // the sum of the weights of the added states
  std::vector<double> value_;
};

class RowStates {
 public:
  static bool Wanted(const Request& request);
  // Returns the maximum memory of one row.
  static int64_t Bytes(const Request& request);

  // `request` must outlive it and request a result from states; `length` is the length of the
  // prompt of row `row`.
  RowStates(const Request& request, int32_t length, int32_t row = 0);

  // Sets the classifier of the adapter. Required before Take if the request's spec has a head.
  void UseClassifier(const Classifier* classifier) { classifier_ = classifier; }

  // Consecutive positions whose states are summed, or whose largest values are taken.
  struct Positions {
    int32_t first, count;
    bool largest = false;
    bool operator==(const Positions&) const = default;
  };
  // Appends the sums needed from a step that computes the positions [begin, end): at most one more
  // than the number of positions.
  void AppendWanted(int32_t begin, int32_t end, std::vector<Positions>* wanted) const;
  // Returns whether only the last position matters, so that no other state must be computed.
  bool OnlyLast() const { return only_last_; }
  // Takes the sums that AppendWanted requested for the step, in the same order; `sums` has them one
  // after another. Computes the results of single tokens on the threads of `divide`. Returns false
  // if a sum is not finite.
  bool Take(std::span<const Positions> wanted, std::span<const double> sums, Divide divide);
  // Writes the results of row `row` of the request to its reply, except the candidates' scores.
  // Called after the last position. Also computes on the threads of `divide`. Later calls, for a
  // prompt that is computed again, change nothing. Returns false if a result is not finite.
  bool Finish(int32_t row, Reply* reply, Divide divide);

  // Returns the vectors of the row, which are states for an extraction, and forgets them. Called
  // after Finish.
  std::vector<float> TakeVectors() { return std::exchange(vectors_, {}); }

  // Returns the number of candidates still to be scored; 0 before Finish. If the candidates are
  // chosen one by one for their order, each choice counts as scoring all of them.
  int64_t unscored() const { return unscored_; }
  // Scores the next `count` candidates of row `row`, or makes choices among them. After the last
  // one, writes scores and order to the reply. Requires that at least `count` are left. Returns
  // false if a result is not finite.
  bool ScoreCandidates(int32_t row, int64_t count, const ExecutableModel& executable, Reply* reply);

 private:
  // Appends one whole-prompt sum for each pool. If fetching the positions one by one is cheaper,
  // appends nothing and returns false.
  bool AppendPooled(std::vector<Positions>* wanted) const;
  bool WriteEmbedding(int32_t row, Reply* reply, Divide divide);
  bool WriteSpans(int32_t row, Reply* reply, Divide divide);
  bool WriteScores(int32_t row, Reply* reply, Divide divide);
  bool WriteTokens(int32_t row, Reply* reply);
  // Makes the vectors of consecutive positions from `first` on.
  void AddVectors(int32_t first, std::span<const double> states);
  bool WriteVectors(int32_t row, Reply* reply) const;
  bool WriteTerms(int32_t row, Reply* reply) const;
  void ChooseCandidates(int32_t row, int64_t count, Reply* reply);

  static constexpr uint32_t kOfTokens =
      kOutputTokenScores | kOutputTokenStates | kOutputVectors | kOutputMaxSim | kOutputExtraction;
  bool WantsTokens() const { return (request_.outputs & kOfTokens) != 0 || WeighsTokens(request_); }
  bool WantsToken(int32_t position) const;
  int64_t VectorSize() const;
  // Computes the results of the tokens from tokens_ on; `states` are their states.
  void TakeTokens(std::span<const double> states, Divide divide);

  const Request& request_;
  const Classifier* classifier_ = nullptr;  // if there is one
  const int32_t length_;
  bool only_last_ = true;
  bool finished_ = false;
  // The pools of the spans, the embedding, the classifier and the candidates, in this order, if
  // requested.
  std::vector<StatePool> pools_;
  size_t spans_ = 0;       // number of span pools
  size_t embeddings_ = 0;  // number of embedding pools
  // The scores, embeddings and weights of the first `tokens_` tokens, if requested.
  int32_t tokens_ = 0;
  std::vector<float> token_scores_, token_states_, term_weights_;
  std::span<const int32_t> vector_positions_;
  std::vector<float> vectors_;  // of these positions, if requested
  int64_t unscored_ = 0;
  std::vector<double> candidate_scores_;  // of the row's first candidates
  std::optional<CandidateOrder> order_;   // set once all are scored, if requested
};

}  // namespace sluice
