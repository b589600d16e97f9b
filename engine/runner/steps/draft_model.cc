#include "engine/runner/steps/draft_model.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// The most tokens of a step. A request that arrives waits at most for one such step.
constexpr int32_t kChunk = 64;
// The weight of the latest step in the mean times.
constexpr double kTimeWeight = 1.0 / 8;

Bucket Capacity() { return {.tokens = kChunk, .sequences = 1}; }

int32_t PagesOfRow(const DraftModel::Options& options) {
  return CeilDiv(options.positions, options.page_tokens);
}

int32_t PagesOf(const DraftModel::Options& options) {
  return std::max(options.rows * PagesOfRow(options), MaxPages(Capacity(), options.page_tokens));
}

// Returns the number of leading tokens that are equal.
int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = a.begin() + std::min(std::ssize(a), std::ssize(b));
  return std::mismatch(a.begin(), end, b.begin()).first - a.begin();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(
    std::shared_ptr<const Model> model, std::shared_ptr<const ExecutableModel> executable,
    const Options& options, Clock* clock) {
  SLUICE_CHECK(options.rows > 0 && options.positions > 0);
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Slot> slot,
                          executable->CreateSlot(Capacity(), PagesOf(options)));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable->Prepare(Capacity()));
  std::unique_ptr<DraftModel> draft(new DraftModel(std::move(model), std::move(executable), options,
                                                   clock, std::move(plan), std::move(slot)));
  SLUICE_RETURN_IF_ERROR(draft->Measure());
  return draft;
}

DraftModel::DraftModel(std::shared_ptr<const Model> model,
                       std::shared_ptr<const ExecutableModel> executable, const Options& options,
                       Clock* clock, std::unique_ptr<Plan> plan, std::unique_ptr<Slot> slot)
    : model_(std::move(model)),
      executable_(std::move(executable)),
      options_(options),
      clock_(clock),
      plan_(std::move(plan)),
      slot_(std::move(slot)),
      batch_(kChunk, 1, options.positions, options.page_tokens),
      places_(options.rows) {
  const int32_t pages = PagesOfRow(options);
  for (int32_t i = 0; i < options.rows; ++i) {
    places_[i].pages.resize(pages);
    std::iota(places_[i].pages.begin(), places_[i].pages.end(), i * pages);
    places_[i].tokens.reserve(options.positions);
  }
}

absl::Status DraftModel::Measure() {
  constexpr int kRuns = 3;
  const std::vector<int32_t> tokens(std::min(options_.positions, kChunk));
  for (const bool single : {false, true}) {
    double& seconds = single ? step_seconds_ : token_seconds_;
    for (int run = 0; run < kRuns; ++run) {
      seconds = 0;  // the first runs only warm up
      places_.front().tokens.clear();
      const auto step = std::span(tokens).first(single ? 1 : tokens.size());
      SLUICE_RETURN_IF_ERROR(Compute(&places_.front(), step, nullptr));
    }
  }
  places_.front().tokens.clear();
  return absl::OkStatus();
}

const DraftModel::Place* DraftModel::Find(const RequestRow& row) const {
  const auto place = std::ranges::find(places_, row.ticket, &Place::ticket);
  return place == places_.end() ? nullptr : &*place;
}

DraftModel::Place& DraftModel::Take(const RequestRow& row) {
  auto place = std::ranges::find(places_, row.ticket, &Place::ticket);
  if (place == places_.end()) {
    place = std::ranges::min_element(places_, {}, &Place::used);
    place->ticket = row.ticket;
    place->tokens.clear();
  }
  place->used = ++used_;
  return *place;
}

void DraftModel::Prepare(RequestRow* row) const {
  const int64_t length = std::ssize(row->history);
  const int64_t room = std::max<int64_t>(options_.positions + 1 - length, 0);
  row->drafts = static_cast<int32_t>(std::min<int64_t>(row->drafts, room));
  row->draft_seconds = step_seconds_;
  // The tokens of the prompt are computed once for all drafts of the row.
  const Place* const place = Find(*row);
  const int64_t computed = place == nullptr ? 0 : std::ssize(place->tokens);
  const int32_t left = std::max(row->generation.limit - row->generation.count, 1);
  row->first_draft_seconds =
      static_cast<double>(std::max<int64_t>(length - computed - 1, 0)) * token_seconds_ / left;
}

double DraftModel::Estimate(const RequestRow& row, int32_t count) const {
  return static_cast<double>(std::ssize(row.history)) * token_seconds_ + count * step_seconds_;
}

int32_t DraftModel::Draft(RequestRow* row, int32_t count, absl::FunctionRef<bool()> stop) {
  const int64_t length = std::ssize(row->history);
  SLUICE_CHECK(length + count <= options_.positions + 1 && count <= row->drafts);
  Place& place = Take(*row);
  const std::span<const int32_t> tokens = row->generation.tokens;
  // The last token is computed again if it was computed, because the first draft follows it.
  const int64_t kept = std::min(CommonPrefix(place.tokens, row->history), length - 1);
  place.tokens.resize(static_cast<size_t>(kept));
  for (int32_t drafted = 0; drafted < count;) {
    if (stop()) return 0;
    const int64_t end = std::min(length + drafted, std::ssize(place.tokens) + kChunk);
    const bool draws = end == length + drafted;
    kernels::SampleResult result{};
    SampledRow draw;
    if (draws) draw = row->DrawAfter(drafted);
    draw.position = static_cast<int32_t>(end) - 1;
    draw.result = &result;
    const absl::Status computed =
        Compute(&place, tokens.first(static_cast<size_t>(end)), draws ? &draw : nullptr);
    if (!computed.ok() || (draws && result.token < 0)) {
      place.tokens.clear();
      return 0;
    }
    if (!draws) continue;
    row->generation.tokens[static_cast<size_t>(end)] = result.token;
    ++drafted;
    if (Ends(*row->owner->request.spec, result.token)) count = drafted;
  }
  return stop() ? 0 : count;
}

absl::Status DraftModel::Compute(Place* place, std::span<const int32_t> tokens,
                                 const SampledRow* draw) {
  const size_t first = place->tokens.size();
  const StepSequence sequence{.first_position = static_cast<int32_t>(first),
                              .count = static_cast<int32_t>(tokens.size() - first),
                              .tokens = tokens.data() + first,
                              .pages = place->pages.data()};
  batch_.Assign(std::span(&sequence, 1), std::span(draw, draw == nullptr ? 0 : 1),
                executable_->row_order(), {});
  const MonoTime begin = clock_->Now();
  SLUICE_RETURN_IF_ERROR(executable_->Replay(*plan_, *slot_, batch_));
  const double seconds = Seconds(clock_->Now() - begin) / sequence.count;
  double& mean = sequence.count == 1 ? step_seconds_ : token_seconds_;
  mean = mean == 0 ? seconds : mean + kTimeWeight * (seconds - mean);
  place->tokens.insert(place->tokens.end(), tokens.begin() + first, tokens.end());
  return absl::OkStatus();
}

}  // namespace sluice
