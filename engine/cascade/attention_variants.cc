#include "engine/cascade/attention_variants.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/ceil_div.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cascade/term_shape.h"
#include "engine/einsum/egraph.h"
#include "engine/einsum/extract.h"
#include "engine/einsum/lower.h"
#include "engine/einsum/rewrites.h"
#include "kernels/kv_segment.h"

namespace sluice {
namespace {

using einsum::Cascade;
using einsum::TermId;
using einsum::TermPool;
using Kind = AttentionVariant::Kind;

// More variants than this are not looked at.
constexpr int64_t kMostVariants = 512;
// The work items for each worker of split:auto.
constexpr int64_t kItemsPerWorker = 4;

// All terms equal to the definition of attention.
class AttentionTerms {
 public:
  AttentionTerms(const einsum::AttentionShape& shape, int64_t chunk)
      : definition_(einsum::AttentionTerm(pool_, shape)) {
    einsum::EGraph graph(&pool_);
    const TermId root = graph.AddTerm(definition_);
    // XSA is linear in the sums, so that it comes last in all kernels: its own rewrites would only
    // multiply the variants.
    std::vector<einsum::Rule> rules = einsum::SplitRules();
    for (auto more :
         {einsum::DivisionRules(),
          einsum::SoftmaxRules({{.rank = "m", .outer = "c", .inner = "j", .chunk = chunk}})}) {
      rules.insert(rules.end(), more.begin(), more.end());
    }
    graph.Saturate(rules, {});
    terms_ = einsum::VariantsOf(graph, pool_, root, kMostVariants).terms;
  }

  int64_t size() const { return std::ssize(terms_); }
  Cascade Definition() { return einsum::Lower(pool_, {{"Y", definition_}}, "definition"); }

  // Returns the cheapest term that the kernel of this kind computes.
  absl::StatusOr<AttentionEstimate> Cheapest(AttentionVariant variant, const einsum::Sizes& sizes,
                                             const einsum::DeviceDescription& device) {
    std::optional<AttentionEstimate> cheapest;
    for (const TermId term : terms_) {
      const TermShape shape = ShapeOf(pool_, term);
      if (!IsVariant(shape, variant.kind)) continue;
      Cascade cascade = einsum::Lower(pool_, {{"Y", term}}, std::string(NameOf(variant.kind)));
      SLUICE_ASSIGN_OR_RETURN(einsum::Analysis analysis,
                              einsum::Analyze(cascade, sizes, "context"));
      if (variant.kind == Kind::kTwoPass && analysis.passes != 2) continue;
      SLUICE_ASSIGN_OR_RETURN(einsum::CostEstimate cost, einsum::Estimate(cascade, sizes, device));
      if (cheapest.has_value() && cheapest->cost.seconds <= cost.seconds) continue;
      cheapest = {variant, std::move(cascade), std::move(analysis), std::move(cost)};
    }
    SLUICE_CHECK(cheapest.has_value());
    return *std::move(cheapest);
  }

 private:
  TermPool pool_;
  TermId definition_;
  std::vector<TermId> terms_;
};

einsum::Sizes SizesOf(const AttentionWork& work) {
  return {{"sequences", work.sequences}, {"tokens", work.tokens}, {"context", work.context},
          {"kv_heads", work.kv_heads},   {"group", work.group},   {"head_dim", work.head_dim}};
}

absl::Status CheckWork(const AttentionWork& work) {
  for (const auto& [name, size] : SizesOf(work)) {
    if (size < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", size, ", below 1"));
  }
  if (work.tokens <= work.context) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokens is ", work.tokens, ", above the context of ", work.context));
}

}  // namespace

const AttentionEstimate& AttentionEstimates::best() const {
  return *std::ranges::min_element(
      variants, {}, [](const AttentionEstimate& estimate) { return estimate.cost.seconds; });
}

absl::StatusOr<AttentionEstimates> EstimateAttention(const einsum::AttentionShape& shape,
                                                     const AttentionWork& work,
                                                     const einsum::DeviceDescription& device,
                                                     int32_t parts) {
  SLUICE_RETURN_IF_ERROR(CheckWork(work));
  const einsum::Sizes sizes = SizesOf(work);
  AttentionEstimates found;
  AttentionTerms whole(shape, kernels::kSegmentTokens);
  found.definition = whole.Definition();
  found.definition_passes = einsum::Passes(found.definition, "context");
  found.rewrites_found = whole.size();
  const int64_t segments = kernels::CeilDiv(work.context, kernels::kSegmentTokens);
  for (const Kind kind : {Kind::kOnePass, Kind::kTwoPass}) {
    // There is nothing to fold in a single segment, of which one pass is two.
    const Kind computed = segments == 1 ? Kind::kTwoPass : kind;
    SLUICE_ASSIGN_OR_RETURN(AttentionEstimate estimate, whole.Cheapest({computed}, sizes, device));
    estimate.variant = {kind};
    found.variants.push_back(std::move(estimate));
  }
  const int64_t blocks = work.sequences * work.kv_heads;
  const int64_t wanted = kernels::CeilDiv(kItemsPerWorker * device.workers, blocks);
  std::vector<AttentionVariant> splits = {{Kind::kSplit, 2}};
  if (parts >= 2 && parts != 2) splits.push_back({Kind::kSplit, parts});
  if (device.workers > 1) splits.push_back({Kind::kSplit, 0});
  for (const AttentionVariant& split : splits) {
    const int64_t ranges = std::min(segments, split.parts == 0 ? wanted : split.parts);
    if (ranges < 2) continue;
    // A range has whole segments, so that ranges are those of the kernel.
    const int64_t chunk = kernels::CeilDiv(segments, ranges) * kernels::kSegmentTokens;
    AttentionTerms terms(shape, chunk);
    SLUICE_ASSIGN_OR_RETURN(AttentionEstimate estimate, terms.Cheapest(split, sizes, device));
    found.variants.push_back(std::move(estimate));
  }
  return found;
}

}  // namespace sluice
