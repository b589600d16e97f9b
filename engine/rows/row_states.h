// The results that a request wants from the states behind the last norm of one of its prompts: the
// embedding, the scores of the classifier and those of its candidates, and of single tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend.h"
#include "engine/model/output_heads.h"
#include "engine/request.h"
#include "engine/rows/candidate_order.h"

namespace sluice {

// Pools states in double, in the order of positions, each of which counts once. So the result has
// the same bits however the prompt was cut and however often parts of it were computed.
class StatePool {
 public:
  // Pools the positions from `first` on, which is below `length`.
  StatePool(Pooling pooling, int32_t first, int32_t length, int64_t width);

  int32_t first() const { return first_; }
  int32_t count() const { return count_; }
  bool Wants(int32_t position) const {
    return position >= first_ + added_ && position < first_ + count_;
  }
  // Returns whether its sum is the largest value of each feature.
  bool largest() const { return pooling_ == Pooling::kMax; }
  // Returns whether it takes the sum of its states in place of each, and has none of them yet.
  bool WantsSum() const { return sums_ && count_ > 1 && added_ == 0; }
  // Returns whether it takes its states one by one, and has not all of them.
  bool WantsEach() const { return count_ > 1 && !complete() && !WantsSum(); }
  // Adds the sum of the states of `count` positions from the next one that is wanted on. Requires
  // that it is the first sum or that of one position.
  void Add(std::span<const double> sum, int32_t count);
  // Returns what the added states become. Requires complete(); called once, unless count() is 1.
  std::span<const double> Result();
  bool complete() const { return added_ == count_; }

 private:
  const Pooling pooling_;
  const bool sums_;              // whether the result is one of a sum, or the largest values
  const int32_t first_, count_;  // the positions to pool
  int32_t added_ = 0;
  double weight_ = 0;  // the sum of the weights of the added states
  std::vector<double> value_;
};

class RowStates {
 public:
  static bool Wanted(const Request& request);
  // Returns the most memory of one row.
  static int64_t Bytes(const Request& request);

  // `request` outlives it and wants states; `length` is the length of the prompt.
  RowStates(const Request& request, int32_t length);

  // The states of consecutive positions, whose sum, or largest values, are wanted.
  struct Positions {
    int32_t first, count;
    bool largest = false;
    bool operator==(const Positions&) const = default;
  };
  // Appends the sums that are wanted of a step that computes the positions [begin, end): at most
  // one more than these.
  void AppendWanted(int32_t begin, int32_t end, std::vector<Positions>* wanted) const;
  // Returns whether only the last position matters, so that no other state need be computed.
  bool OnlyLast() const { return only_last_; }
  // Takes the sums that were wanted when their step was laid out, in the order of AppendWanted;
  // they are in `sums` one after another. Computes what is wanted of single tokens on the threads
  // of `divide`. Returns false if a sum is not finite.
  bool Take(std::span<const Positions> wanted, std::span<const double> sums, Divide divide);
  // Writes the results of row `row` of the request to its reply, after the last position, except
  // the scores of its candidates; computes them likewise. Later calls, for a prompt that is
  // computed again, change nothing. Returns false if a result is not finite.
  bool Finish(int32_t row, Reply* reply, Divide divide);

  // Returns the number of candidates that are to be scored, which is 0 until Finish. A choice among
  // candidates for their order counts as scoring all of them.
  int64_t unscored() const { return unscored_; }
  // Scores the next `count` candidates of row `row`, or makes choices among them, and with the last
  // one writes scores and order to the reply. Requires that no more are left. Returns false if a
  // result is not finite.
  bool ScoreCandidates(int32_t row, int64_t count, const ExecutableModel& executable, Reply* reply);

 private:
  // Appends what each pool wants of the whole prompt. Appends nothing and returns false if its
  // positions one by one are fewer.
  bool AppendPooled(std::vector<Positions>* wanted) const;
  bool WriteEmbedding(int32_t row, Reply* reply, Divide divide);
  bool WriteScores(int32_t row, Reply* reply, Divide divide);
  bool WriteTokens(int32_t row, Reply* reply);
  void ChooseCandidates(int32_t row, int64_t count, Reply* reply);

  bool WantsTokens() const {
    return (request_.outputs & (kOutputTokenScores | kOutputTokenStates)) != 0;
  }
  bool WantsToken(int32_t position) const;
  // Computes what is wanted of the tokens from tokens_ on, whose states are `states`.
  void TakeTokens(std::span<const double> states, Divide divide);

  const Request& request_;
  const int32_t length_;
  bool only_last_ = true;
  bool finished_ = false;
  // The pools of the embedding, then that of the classifier, then that of the candidates, as far as
  // these are wanted.
  std::vector<StatePool> pools_;
  size_t embeddings_ = 0;  // the number of the first
  // The scores and the embeddings of the first `tokens_` tokens, as far as they are wanted.
  int32_t tokens_ = 0;
  std::vector<float> token_scores_, token_states_;
  int64_t unscored_ = 0;
  std::vector<double> candidate_scores_;  // of the row's first candidates
  std::optional<CandidateOrder> order_;   // once all are scored, if their order is wanted
};

}  // namespace sluice
