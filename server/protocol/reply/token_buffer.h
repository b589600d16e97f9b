// The generated tokens of one request, copied from the engine's callbacks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace sluice {

// Keeps tokens in the order of arrival, so the tokens of each row are in order. Clearing keeps the
// allocated memory.
class TokenBuffer {
 public:
  // Copies `count` tokens, each with its `num_top` candidates.
  void Append(const GeneratedToken* tokens, int count, int32_t num_top) {
    for (int i = 0; i < count; ++i) {
      tokens_.push_back(tokens[i]);
      tokens_.back().top_ids = nullptr;  // the pointers are valid only during the call; see Token
      tokens_.back().top_logprobs = nullptr;
      tokens_.back().top_scores = nullptr;
      if (tokens[i].top_ids == nullptr) continue;
      top_ids_.insert(top_ids_.end(), tokens[i].top_ids, tokens[i].top_ids + num_top);
      top_logprobs_.insert(top_logprobs_.end(), tokens[i].top_logprobs,
                           tokens[i].top_logprobs + num_top);
      if (tokens[i].top_scores == nullptr) continue;
      top_scores_.insert(top_scores_.end(), tokens[i].top_scores, tokens[i].top_scores + num_top);
    }
  }

  size_t size() const { return tokens_.size(); }
  bool empty() const { return tokens_.empty(); }

  // Returns a token. Its candidates, [num_top], are valid until the buffer changes; nullptr if none
  // were requested.
  GeneratedToken Token(size_t at) const {
    GeneratedToken token = tokens_[at];
    if (top_ids_.empty()) return token;
    const size_t num_top = top_ids_.size() / tokens_.size();
    token.top_ids = top_ids_.data() + at * num_top;
    token.top_logprobs = top_logprobs_.data() + at * num_top;
    if (!top_scores_.empty()) token.top_scores = top_scores_.data() + at * num_top;
    return token;
  }

  void Clear() {
    tokens_.clear();
    top_ids_.clear();
    top_logprobs_.clear();
    top_scores_.clear();
  }

 private:
  std::vector<GeneratedToken> tokens_;
  std::vector<int32_t> top_ids_;  // [tokens, num_top], or empty
  std::vector<float> top_logprobs_;
  std::vector<float> top_scores_;  // [tokens, num_top], or empty
};

}  // namespace sluice
