#include "cascades/attention_variants.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/ceil_div.h"
#include "base/status_macros.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/term_shape.h"
#include "kernels/kv_segment.h"

namespace sluice {
namespace {

using einsum::Cascade;
using einsum::TermId;
using einsum::TermPool;
using Kind = AttentionVariant::Kind;

// Each stage considers no more variants than this.
constexpr int64_t kMostVariants = 1024;
// The work items for each worker of split:auto.
constexpr int64_t kItemsPerWorker = 4;

einsum::AttentionShape WithoutXsa(einsum::AttentionShape shape) {
  shape.xsa = einsum::XsaForm::kNone;
  return shape;
}

einsum::Sizes SizesOf(const AttentionWork& work) {
  return {{"sequences", work.sequences}, {"tokens", work.tokens}, {"context", work.context},
          {"kv_heads", work.kv_heads},   {"group", work.group},   {"head_dim", work.head_dim}};
}

// Searches for the terms of attention that kernels compute, in two stages: divisions are moved,
// then keys are cut. XSA comes last in all kernels, so it is not part of the search.
class AttentionSearch {
 public:
  AttentionSearch(const einsum::AttentionShape& shape, const AttentionWork& work,
                  const einsum::DeviceDescription& device)
      : shape_(shape),
        sizes_(SizesOf(work)),
        resident_bytes_(work.resident_bytes),
        device_(device),
        definition_(einsum::AttentionTerm(pool_, WithoutXsa(shape))),
        divided_(einsum::Optimize(
            pool_, definition_, {einsum::DivisionRules()}, kMostVariants,
            CostOf(&pool_, Kind::kTwoPass, {.resident_bytes = resident_bytes_}))) {}

  Cascade Definition() { return WithXsa(pool_, definition_, "definition"); }

  // Returns the cheapest term that the kernel computes with at most `most_work_items` work items,
  // and counts the terms in `found`.
  absl::StatusOr<AttentionEstimate> Find(const AttentionVariant& variant, int64_t most_work_items,
                                         AttentionEstimates* found) const {
    const einsum::Circumstances circumstances = {resident_bytes_, most_work_items};
    TermPool pool = pool_;  // with ranks of chunks of its own
    std::vector<einsum::Rule> rules = einsum::SplitRules();
    std::ranges::move(
        einsum::SoftmaxRules(
            {{.rank = "m", .outer = "c", .inner = "j", .chunk = kernels::kSegmentTokens}}),
        std::back_inserter(rules));
    const einsum::Optimized best = einsum::Optimize(pool, divided_.term, {rules}, kMostVariants,
                                                    CostOf(&pool, variant.kind, circumstances));
    if (std::isinf(best.cost)) {
      return absl::InternalError(absl::StrCat("none of ", best.compared, " terms of attention is ",
                                              AttentionVariantName(variant)));
    }
    // The first stage's result is also among the second's terms.
    found->variants_found = divided_.compared + best.compared - 1;
    found->variants_complete &= divided_.complete && best.complete;
    AttentionEstimate estimate{.variant = variant, .cascade = {}, .analysis = {}, .cost = {}};
    estimate.cascade = WithXsa(pool, best.term, std::string(NameOf(variant.kind)));
    SLUICE_ASSIGN_OR_RETURN(estimate.analysis,
                            einsum::Analyze(estimate.cascade, sizes_, "context"));
    estimate.cost = einsum::Estimate(estimate.cascade, estimate.analysis, device_, circumstances);
    return estimate;
  }

 private:
  Cascade WithXsa(TermPool& pool, TermId y, std::string name = "") const {
    return einsum::Lower(pool, {{"Y", einsum::ExcludeOwnValue(pool, shape_, y)}}, std::move(name));
  }

  // Returns the costs of terms, infinite for terms of another kind.
  std::function<double(TermId)> CostOf(TermPool* pool, Kind kind,
                                       const einsum::Circumstances& circumstances) const {
    return [this, pool, kind, circumstances](TermId term) {
      constexpr double kExcluded = std::numeric_limits<double>::infinity();
      if (!IsVariant(ShapeOf(*pool, term), kind)) return kExcluded;
      const Cascade cascade = WithXsa(*pool, term);
      const absl::StatusOr<einsum::Analysis> analysis = einsum::Analyze(cascade, sizes_, "context");
      if (!analysis.ok() || (kind == Kind::kTwoPass && analysis->passes != 2)) return kExcluded;
      return einsum::Estimate(cascade, *analysis, device_, circumstances).seconds;
    };
  }

  const einsum::AttentionShape shape_;
  const einsum::Sizes sizes_;
  const double resident_bytes_;
  const einsum::DeviceDescription& device_;
  TermPool pool_;
  const TermId definition_;
  const einsum::Optimized divided_;
};

absl::Status CheckWork(const AttentionWork& work) {
  for (const auto& [name, size] : SizesOf(work)) {
    if (size < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", size, ", below 1"));
  }
  if (work.tokens <= work.context) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokens is ", work.tokens, ", above the context of ", work.context));
}

}  // namespace

absl::StatusOr<AttentionEstimates> EstimateAttention(const einsum::AttentionShape& shape,
                                                     const AttentionWork& work,
                                                     const einsum::DeviceDescription& device,
                                                     int32_t parts) {
  SLUICE_RETURN_IF_ERROR(CheckWork(work));
  AttentionEstimates found;
  AttentionSearch search(shape, work, device);
  found.definition = search.Definition();
  found.definition_passes = einsum::Passes(found.definition, "context");
  const int64_t segments = CeilDiv(work.context, kernels::kSegmentTokens);
  for (const Kind kind : {Kind::kOnePass, Kind::kTwoPass}) {
    // A single segment has nothing to fold: one pass is the same as two.
    const Kind computed = segments == 1 ? Kind::kTwoPass : kind;
    SLUICE_ASSIGN_OR_RETURN(AttentionEstimate estimate,
                            search.Find({computed}, std::numeric_limits<int64_t>::max(), &found));
    estimate.variant = {kind};
    found.variants.push_back(std::move(estimate));
  }
  const int64_t blocks = work.sequences * work.kv_heads;
  const int64_t wanted = CeilDiv(kItemsPerWorker * device.workers, blocks);
  std::vector<AttentionVariant> splits = {{Kind::kSplit, 2}};
  if (parts >= 2 && parts != 2) splits.push_back({Kind::kSplit, parts});
  if (device.workers > 1) splits.push_back({Kind::kSplit, 0});
  for (const AttentionVariant& split : splits) {
    const int64_t ranges = std::min(segments, split.parts == 0 ? wanted : split.parts);
    if (ranges < 2) continue;
    SLUICE_ASSIGN_OR_RETURN(AttentionEstimate estimate,
                            search.Find(split, blocks * work.tokens * ranges, &found));
    found.variants.push_back(std::move(estimate));
  }
  return found;
}

}  // namespace sluice
