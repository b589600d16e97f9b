#include "engine/rows/row_edits.h"

#include <algorithm>

#include "base/size_of.h"

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

int64_t RowEdits::DrawBytes() { return kSizeOf<Draw>; }

bool RowEdits::Wanted(const RequestSpec& spec) {
  return PenalisesGenerated(spec.edits) || !spec.edits.bias.empty() ||
         !spec.edits.allowed.empty() || spec.stop.min_tokens > 0;
}

RowEdits::RowEdits(const RequestSpec& spec, std::span<const int32_t> prompt, int32_t max_generated,
                   int32_t max_drafted)
    : spec_(spec), draws_(1 + max_drafted) {
  const EditRules& rules = spec.edits;
  for (Draw& draw : draws_) {
    draw.edits.repetition = rules.repetition_penalty;
    draw.edits.presence = rules.presence_penalty;
    draw.edits.frequency = rules.frequency_penalty;
    draw.edits.bias = rules.bias;
    draw.edits.allowed = rules.allowed;
  }
  if (spec.stop.min_tokens > 0) ending_ = EndingTokens(spec);
  if (PenalisesPrompt(rules)) {
    for (const int32_t token : prompt) See(token, 0);
  }
  if (PenalisesGenerated(rules)) {
    const size_t room = seen_.size() + max_generated;
    seen_.reserve(room);
    places_.reserve(room);
    for (Draw& draw : std::span(draws_).subspan(1)) draw.seen.reserve(room + max_drafted);
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

std::span<const kernels::SeenToken> RowEdits::SeenAfter(std::span<const int32_t> drafted,
                                                        Draw* draw) const {
  if (drafted.empty() || !PenalisesGenerated(spec_.edits)) return seen_;
  std::vector<kernels::SeenToken>& seen = draw->seen;
  seen.assign(seen_.begin(), seen_.end());
  for (const int32_t token : drafted) {
    const auto place = places_.find(token);
    const auto kept = seen.begin() + std::ssize(seen_);
    const auto entry = place != places_.end()
                           ? seen.begin() + place->second
                           : std::ranges::find(kept, seen.end(), token, &kernels::SeenToken::token);
    if (entry == seen.end()) {
      seen.push_back({.token = token, .generated = 1});
    } else {
      ++entry->generated;
    }
  }
  return seen;
}

const kernels::LogitEdits* RowEdits::At(int32_t index, std::span<const int32_t> drafted) {
  Draw& draw = draws_[drafted.size()];
  kernels::LogitEdits& edits = draw.edits;
  edits.seen = SeenAfter(drafted, &draw);
  edits.banned = {};
  if (index < spec_.stop.min_tokens) edits.banned = ending_;
  const bool edits_any =
      !edits.seen.empty() || !edits.bias.empty() || !edits.banned.empty() || !edits.allowed.empty();
  return edits_any ? &edits : nullptr;
}

bool Ends(const RequestSpec& spec, int32_t token) {
  const StopRules& stop = spec.stop;
  if (std::binary_search(stop.ids.begin(), stop.ids.end(), token)) return true;
  const std::vector<int32_t>& eos = spec.model->config.eos_token_ids;
  return !stop.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
}

}  // namespace sluice
