#include "cascades/einsum/optimize_cascade.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status_macros.h"
#include "cascades/einsum/conditions.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/levels.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/terms_of.h"

namespace sluice::einsum {
namespace {

constexpr int64_t kMostVariants = 1024;  // of each stage

std::string UnusedName(const std::string& base, const std::vector<Rank>& ranks) {
  std::string name = base;
  for (int number = 0; std::ranges::find(ranks, name, &Rank::name) != ranks.end(); ++number) {
    name = base + "_" + std::to_string(number);
  }
  return name;
}

// Returns the partitions m = m1 * chunk + m0 of the ranks that may be cut.
std::vector<Partition> PartitionsOf(const Cascade& cascade, const Sizes& sizes, int64_t chunk) {
  std::vector<Partition> partitions;
  std::vector<Rank> taken = cascade.ranks;
  for (const Rank& rank : cascade.ranks) {
    const bool reduced = std::ranges::any_of(AllEinsums(cascade), [&](const auto& placed) {
      const auto& reduce = placed.einsum->reduce;
      return std::ranges::find(reduce, rank.name, &Reduction::rank) != reduce.end();
    });
    // A chunk of a rank without a symbol would not belong to the rank's family (levels.h).
    if (!reduced || rank.size.symbol.empty() || SizeOf(rank, sizes).value_or(0) <= chunk) continue;
    Partition partition{rank.name, UnusedName(rank.name + "1", taken), "", chunk};
    taken.push_back({partition.outer, {}});
    partition.inner = UnusedName(rank.name + "0", taken);
    taken.push_back({partition.inner, {}});
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

// Gives the result the ranks and the home of `output`, in this order, and its conditions.
void FinishOutput(const OutputTerm& output, Cascade* cascade) {
  Tensor& lowered = *std::ranges::find(cascade->tensors, output.tensor.name, &Tensor::name);
  std::vector<size_t> places;
  places.reserve(output.tensor.ranks.size());
  for (const std::string& rank : output.tensor.ranks) {
    places.push_back(std::ranges::find(lowered.ranks, rank) - lowered.ranks.begin());
  }
  lowered = output.tensor;
  const auto reorder = [&](Access* access) {
    if (access->tensor != output.tensor.name) return;
    std::vector<Index> indices;
    indices.reserve(places.size());
    for (const size_t place : places) indices.push_back(access->indices[place]);
    access->indices = std::move(indices);
  };
  bool is_read = false;
  const auto visit = [&](Einsum* einsum) {
    is_read |= Reads(*einsum, output.tensor.name);
    reorder(&einsum->out);
    for (Access& access : einsum->in) reorder(&access);
  };
  for (Statement& statement : cascade->statements) {
    if (auto* const einsum = std::get_if<Einsum>(&statement)) {
      visit(einsum);
      continue;
    }
    auto& iteration = std::get<Iteration>(statement);
    for (Einsum& each : iteration.init) visit(&each);
    for (Einsum& each : iteration.body) visit(&each);
  }
  if (output.where.empty()) return;
  for (size_t i = 0; i < cascade->statements.size(); ++i) {
    auto* const einsum = std::get_if<Einsum>(&cascade->statements[i]);
    if (einsum == nullptr || einsum->out.tensor != output.tensor.name) continue;
    Einsum* writer = einsum;
    if (is_read) {
      // Its readers use the value at all points, so the conditions apply to a copy.
      Einsum copy{.out = einsum->out, .in = {einsum->out}};
      std::string name = output.tensor.name + "0";
      const std::vector<Tensor> tensors = AllTensors(*cascade);
      while (std::ranges::find(tensors, name, &Tensor::name) != tensors.end()) name += "0";
      const auto rename = [&](Access* access) {
        if (access->tensor == output.tensor.name) access->tensor = name;
      };
      for (Statement& statement : cascade->statements) {
        if (auto* const each = std::get_if<Einsum>(&statement)) {
          rename(&each->out);
          for (Access& access : each->in) rename(&access);
          continue;
        }
        auto& iteration = std::get<Iteration>(statement);
        for (Einsum& each : iteration.body) {
          for (Access& access : each.in) rename(&access);
        }
        for (Einsum& each : iteration.init) {
          for (Access& access : each.in) rename(&access);
        }
      }
      rename(&copy.in[0]);
      cascade->statements.emplace_back(std::move(copy));
      writer = &std::get<Einsum>(cascade->statements.back());
    }
    for (const Condition& each : output.where) {
      if (std::ranges::find(writer->where, each) == writer->where.end()) {
        writer->where.push_back(each);
      }
    }
    return;
  }
}

class Optimizer {
 public:
  Optimizer(const Sizes& sizes, const DeviceDescription& device) : sizes_(sizes), device_(device) {}

  absl::StatusOr<OptimizedCascade> Run(const Cascade& cascade, int64_t chunk) {
    OptimizedCascade result;
    SLUICE_ASSIGN_OR_RETURN(Cascade carried, CarryConditions(cascade));
    SLUICE_ASSIGN_OR_RETURN(result.given, Cost(std::move(carried)));
    stream_ = result.given.analysis.stream;
    SLUICE_ASSIGN_OR_RETURN(terms_, TermsOf(pool_, cascade));
    const std::vector<std::vector<Rule>> stages =
        StagesOf({.partitions = PartitionsOf(cascade, sizes_, chunk), .own_value = {}});
    result.compared = 1;
    for (OutputTerm& output : terms_.outputs) {
      const TermId definition = output.term;
      const Optimized best = Optimize(pool_, definition, stages, kMostVariants, [&](TermId term) {
        output.term = term;
        const absl::StatusOr<CostedCascade> costed = Cost(Lowered(cascade.name));
        return costed.ok() ? costed->cost.seconds : std::numeric_limits<double>::infinity();
      });
      output.term = best.term;
      result.compared += best.compared;
      result.complete &= best.complete;
    }
    absl::StatusOr<CostedCascade> found = Cost(Lowered(cascade.name));
    const bool cheaper = found.ok() && found->cost.seconds < result.given.cost.seconds;
    result.cheapest = cheaper ? *std::move(found) : result.given;
    return result;
  }

 private:
  Cascade Lowered(const std::string& name) {
    std::vector<NamedTerm> outputs;
    outputs.reserve(terms_.outputs.size());
    for (const OutputTerm& each : terms_.outputs) outputs.push_back({each.tensor.name, each.term});
    Cascade cascade = Lower(pool_, std::move(outputs), name, terms_.reductions);
    for (const OutputTerm& each : terms_.outputs) FinishOutput(each, &cascade);
    return cascade;
  }

  absl::StatusOr<CostedCascade> Cost(Cascade cascade) const {
    CostedCascade costed{.cascade = std::move(cascade), .analysis = {}, .cost = {}};
    const bool has_stream = !stream_.empty() && !FamilyOf(costed.cascade, stream_).empty();
    SLUICE_ASSIGN_OR_RETURN(costed.analysis,
                            Analyze(costed.cascade, sizes_, has_stream ? stream_ : ""));
    costed.cost = Estimate(costed.cascade, costed.analysis, device_);
    return costed;
  }

  const Sizes& sizes_;
  const DeviceDescription& device_;
  std::string stream_;
  TermPool pool_;
  CascadeTerms terms_;
};

}  // namespace

absl::StatusOr<OptimizedCascade> OptimizeCascade(const Cascade& cascade, const Sizes& sizes,
                                                 const DeviceDescription& device, int64_t chunk) {
  return Optimizer(sizes, device).Run(cascade, chunk);
}

}  // namespace sluice::einsum
