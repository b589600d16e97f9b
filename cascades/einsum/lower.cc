#include "cascades/einsum/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "cascades/einsum/lower_fuse.h"
#include "cascades/einsum/lower_stream.h"
#include "cascades/einsum/rewrites.h"

namespace sluice::einsum {
namespace {

bool IsStream(const Term& node) {
  return node.kind == TermKind::kFold || node.kind == TermKind::kMerge;
}

class Lowering {
 public:
  explicit Lowering(TermPool& pool) : pool_(pool) {}

  Cascade Run(std::vector<NamedTerm> outputs, std::string name, std::vector<NamedTerm> hints) {
    cascade_.name = std::move(name);
    for (NamedTerm& each : outputs) each.term = PushSplits(pool_, each.term);
    for (NamedTerm& each : hints) hints_.emplace(PushSplits(pool_, each.term), each.name);
    for (const NamedTerm& each : outputs) {
      outputs_.emplace(each.term, each.name);
      taken_.insert(each.name);
      Visit(each.term);
      ++uses_[each.term];
    }
    for (const NamedTerm& each : outputs) EmitOutput(each);
    for (const NamedTerm& each : outputs) AddTensor(each.name, each.term);
    cascade_.ranks = RanksUsed(pool_, cascade_);
    return std::move(cascade_);
  }

 private:
  // Counts the uses of all terms within `id`, and lists its inputs.
  void Visit(TermId id) {
    if (!reached_.insert(id).second) return;
    const Term& node = pool_.TermOf(id);
    if (node.kind == TermKind::kInput) {
      const Tensor& tensor = pool_.TensorOf(node.access.tensor);
      if (taken_.insert(tensor.name).second) cascade_.tensors.push_back(tensor);
    }
    for (const TermId arg : node.args) {
      ++uses_[arg];
      Visit(arg);
    }
  }

  bool IsShared(TermId id) const {
    return uses_.at(id) > 1 || outputs_.contains(id) || hints_.contains(id);
  }

  FusedTerm FuseHere(TermId id) const {
    return Fuse(pool_, id, [this](TermId term) { return IsShared(term); });
  }

  bool DependsOn(TermId id, TermId on) const {
    std::vector<TermId> open = {id};
    std::set<TermId> seen;
    while (!open.empty()) {
      const TermId at = open.back();
      open.pop_back();
      if (at == on) return true;
      if (!seen.insert(at).second) continue;
      const std::vector<TermId>& args = pool_.TermOf(at).args;
      open.insert(open.end(), args.begin(), args.end());
    }
    return false;
  }

  void EmitOutput(const NamedTerm& output) {
    const Access& result = Emit(output.term);
    if (result == AccessOf(output.name, pool_.RanksOf(output.term))) return;
    cascade_.statements.push_back(
        Einsum{.out = AccessOf(output.name, pool_.RanksOf(output.term)), .in = {result}});
  }

  void AddTensor(const std::string& name, TermId id) {
    if (std::ranges::find(cascade_.tensors, name, &Tensor::name) != cascade_.tensors.end()) return;
    cascade_.tensors.push_back({.name = name, .ranks = pool_.RanksOf(id)});
  }

  // Adds the statements that compute the term, once, and returns where its value is.
  const Access& Emit(TermId id) {
    if (const auto found = results_.find(id); found != results_.end()) return found->second;
    const Term& node = pool_.TermOf(id);
    if (node.kind == TermKind::kInput) return results_[id] = node.access;
    if (node.kind == TermKind::kConstant) {
      return results_[id] = {.tensor = {}, .constant = node.value};
    }
    if (const TermId stream = StreamThatComputes(id); stream >= 0) {
      EmitStreams(stream);
      return results_.at(id);
    }
    for (const TermId in : FuseHere(id).in) Emit(in);
    cascade_.statements.push_back(EinsumOf(id));
    return results_.at(id);
  }

  // Requires that the terms that it reads have been computed.
  Einsum EinsumOf(TermId id) {
    auto [einsum, in] = FuseHere(id);
    for (const TermId each : in) einsum.in.push_back(results_.at(each));
    einsum.out = results_[id] = AccessOf(NameFor(id), pool_.RanksOf(id));
    return einsum;
  }

  // Returns `id`, if it is a stream, or a stream whose running maximum ends as `id`, or -1.
  TermId StreamThatComputes(TermId id) const {
    const Term& node = pool_.TermOf(id);
    if (IsStream(node)) return id;
    for (const TermId stream : reached_) {
      if (IsStream(pool_.TermOf(stream)) && IsMaximumOf(id, stream)) return stream;
    }
    return -1;
  }

  bool IsMaximumOf(TermId id, TermId stream) const {
    const Term& node = pool_.TermOf(id);
    const Term& of = pool_.TermOf(stream);
    return node.kind == TermKind::kReduce && node.op == Op::kMax && node.rank == of.rank &&
           node.args[0] == of.args[0] && node.where.empty() && !DependsOn(stream, id);
  }

  // Returns the streams that share an iteration with `first` and are not computed yet.
  std::vector<TermId> StreamsWith(TermId first) const {
    std::vector<TermId> streams = {first};
    const Term& node = pool_.TermOf(first);
    for (const TermId id : reached_) {
      const Term& other = pool_.TermOf(id);
      if (other.kind == node.kind && other.rank == node.rank && other.args[0] == node.args[0] &&
          !results_.contains(id) && std::ranges::none_of(streams, [&](TermId stream) {
            return DependsOn(stream, id) || DependsOn(id, stream);
          })) {
        streams.push_back(id);
      }
    }
    return streams;
  }

  // Returns the terms that the iteration over the streams reads at its own point of the rank.
  std::set<TermId> InsideOf(const std::vector<TermId>& streams) const {
    const std::string& rank = pool_.TermOf(streams[0]).rank;
    std::set<TermId> inside;
    const auto add = [&](const auto& self, TermId id) -> void {
      const Term& node = pool_.TermOf(id);
      if (IsStream(node) || node.args.empty() || !pool_.HasRank(id, rank)) return;
      if (results_.contains(id) || !inside.insert(id).second) return;
      for (const TermId arg : node.args) self(self, arg);
    };
    for (const TermId stream : streams) {
      for (const TermId arg : pool_.TermOf(stream).args) add(add, arg);
    }
    return inside;
  }

  // Computes the terms that the iteration over the streams reads from outside. These may include
  // another iteration, which may compute some of this iteration's terms or streams.
  void EmitOutside(const std::vector<TermId>& streams) {
    const std::set<TermId> inside = InsideOf(streams);
    std::vector<TermId> readers = streams;
    readers.insert(readers.end(), inside.begin(), inside.end());
    for (const TermId reader : readers) {
      for (const TermId arg : pool_.TermOf(reader).args) {
        if (!inside.contains(arg)) Emit(arg);
      }
    }
  }

  // Returns the terms that are the maxima of all these streams.
  std::set<TermId> MaximaOf(const std::vector<TermId>& streams) const {
    std::set<TermId> maxima;
    for (const TermId id : reached_) {
      if (!results_.contains(id) &&
          std::ranges::all_of(streams, [&](TermId each) { return IsMaximumOf(id, each); })) {
        maxima.insert(id);
      }
    }
    return maxima;
  }

  void EmitStreams(TermId first) {
    const Term node = pool_.TermOf(first);
    const bool folds = node.kind == TermKind::kFold;
    if (folds) EmitOutside(StreamsWith(first));
    if (results_.contains(first)) return;
    const std::vector<TermId> streams = StreamsWith(first);
    const std::set<TermId> maxima = MaximaOf(streams);
    const std::set<TermId> inside = folds ? InsideOf(streams) : std::set<TermId>{};
    Iteration iteration{.rank = node.rank, .init = {}, .body = {}};
    const auto compute = [&](const auto& self, TermId id) -> void {
      if (results_.contains(id)) return;
      if (!inside.contains(id)) {
        Emit(id);
        return;
      }
      for (const TermId in : FuseHere(id).in) self(self, in);
      iteration.body.push_back(EinsumOf(id));
    };
    for (const TermId stream : streams) {
      for (const TermId arg : pool_.TermOf(stream).args) {
        compute(compute, arg);
        if (!folds) KeepInArena(arg);
      }
    }
    AppendStreams(streams, maxima, &iteration);
    cascade_.statements.push_back(std::move(iteration));
  }

  // Makes the result of a term a tensor of the arena, unless it is an input or a constant.
  void KeepInArena(TermId id) {
    if (pool_.TermOf(id).args.empty()) return;
    const Access whole = results_.at(id);
    if (whole != AccessOf(whole.tensor, pool_.RanksOf(id))) {  // the end of an iteration
      results_[id] = AccessOf(NameFor(id), pool_.RanksOf(id));
      cascade_.statements.push_back(Einsum{.out = results_[id], .in = {whole}});
    }
    AddTensor(results_[id].tensor, id);
  }

  void AppendStreams(const std::vector<TermId>& streams, const std::set<TermId>& maxima,
                     Iteration* iteration) {
    const auto ranks_without = [&](TermId id) {
      std::vector<std::string> ranks = pool_.RanksOf(id);
      std::erase(ranks, iteration->rank);
      return ranks;
    };
    std::vector<StreamSum> sums;
    sums.reserve(streams.size());
    for (const TermId stream : streams) {
      sums.push_back({results_.at(pool_.TermOf(stream).args[1]), ranks_without(stream)});
    }
    const TermId local = pool_.TermOf(streams[0]).args[0];
    const CarriedResults carried = AppendCarried(
        results_.at(local), ranks_without(local), sums,
        [this](const std::string& base) { return NewName(base); }, iteration);
    for (const TermId id : maxima) results_[id] = carried.max;
    for (size_t i = 0; i < streams.size(); ++i) results_[streams[i]] = carried.sums[i];
  }

  std::string NameFor(TermId id) {
    if (const auto output = outputs_.find(id); output != outputs_.end()) return output->second;
    if (const auto hint = hints_.find(id); hint != hints_.end()) return NewName(hint->second);
    const Term& node = pool_.TermOf(id);
    const auto is_weight = [this](TermId arg) {
      const Term& weight = pool_.TermOf(arg);
      return weight.function == Function::kExp || weight.op == Op::kDivide;
    };
    if (node.kind == TermKind::kReduce) {
      if (node.op != Op::kAdd) return NewName("G");
      const Term& inside = pool_.TermOf(node.args[0]);
      if (inside.function == Function::kExp) return NewName("D");
      return NewName(std::ranges::any_of(inside.args, is_weight) ? "Y" : "S");
    }
    if (node.function == Function::kExp) return NewName("N");
    return NewName(node.kind == TermKind::kMap && node.op == Op::kDivide ? "A" : "B");
  }

  std::string NewName(const std::string& base) {
    std::string name = base;
    for (int number = 2; !taken_.insert(name).second; ++number) {
      name = base + std::to_string(number);
    }
    return name;
  }

  TermPool& pool_;
  Cascade cascade_;
  std::set<TermId> reached_;
  std::map<TermId, int> uses_;
  std::map<TermId, std::string> outputs_;  // required names
  std::map<TermId, std::string> hints_;    // preferred names, if unused
  std::set<std::string> taken_;
  std::map<TermId, Access> results_;
};

}  // namespace

Cascade Lower(TermPool& pool, std::vector<NamedTerm> outputs, std::string name,
              std::vector<NamedTerm> hints) {
  return Lowering(pool).Run(std::move(outputs), std::move(name), std::move(hints));
}

}  // namespace sluice::einsum
