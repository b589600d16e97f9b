#include "engine/rows/row_edits.h"

#include <algorithm>

namespace sluice {
namespace {

bool PenalisesGenerated(const EditRules& rules) {
  return rules.repetition_penalty != 1.0f || rules.presence_penalty != 0.0f ||
         rules.frequency_penalty != 0.0f;
}

// Returns whether a penalty applies to the tokens of the prompt. The other penalties only apply to
// generated tokens.
bool PenalisesPrompt(const EditRules& rules) { return rules.repetition_penalty != 1.0f; }

std::vector<int32_t> EndingTokens(const RequestSpec& spec) {
  std::vector<int32_t> tokens = spec.stop.ids;
  if (!spec.stop.ignore_eos) {
    const std::vector<int32_t>& eos = spec.model->config.eos_token_ids;
    tokens.insert(tokens.end(), eos.begin(), eos.end());
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace

bool RowEdits::Wanted(const RequestSpec& spec) {
  return PenalisesGenerated(spec.edits) || !spec.edits.bias.empty() ||
         !spec.edits.allowed.empty() || spec.stop.min_tokens > 0;
}

RowEdits::RowEdits(const RequestSpec& spec, std::span<const int32_t> prompt, int32_t max_generated)
    : spec_(spec) {
  const EditRules& rules = spec.edits;
  edits_.repetition = rules.repetition_penalty;
  edits_.presence = rules.presence_penalty;
  edits_.frequency = rules.frequency_penalty;
  edits_.bias = rules.bias;
  edits_.allowed = rules.allowed;
  if (spec.stop.min_tokens > 0) ending_ = EndingTokens(spec);
  if (PenalisesPrompt(rules)) {
    for (const int32_t token : prompt) See(token, 0);
  }
  if (PenalisesGenerated(rules)) {
    const size_t room = seen_.size() + max_generated;
    seen_.reserve(room);
    places_.reserve(room);
  }
}

void RowEdits::See(int32_t token, int32_t generated) {
  const auto [place, fresh] = places_.try_emplace(token, std::ssize(seen_));
  if (fresh) {
    seen_.push_back({.token = token, .generated = generated});
  } else {
    seen_[place->second].generated += generated;
  }
}

void RowEdits::Keep(int32_t token) {
  if (PenalisesGenerated(spec_.edits)) See(token, 1);
}

const kernels::LogitEdits* RowEdits::At(int32_t index) {
  edits_.seen = seen_;
  edits_.banned = {};
  if (index < spec_.stop.min_tokens) edits_.banned = ending_;
  const bool edits_any = !edits_.seen.empty() || !edits_.bias.empty() || !edits_.banned.empty() ||
                         !edits_.allowed.empty();
  return edits_any ? &edits_ : nullptr;
}

bool Ends(const RequestSpec& spec, int32_t token) {
  const StopRules& stop = spec.stop;
  if (std::binary_search(stop.ids.begin(), stop.ids.end(), token)) return true;
  const std::vector<int32_t>& eos = spec.model->config.eos_token_ids;
  return !stop.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
}

}  // namespace sluice
