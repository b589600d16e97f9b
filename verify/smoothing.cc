#include "verify/smoothing.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace sluice::verify {
namespace {

constexpr size_t kOutside = SIZE_MAX;  // a reader that is not an op

// The buffers that an op reads, and the one that it writes.
struct Access {
  std::vector<BufferId> reads;
  BufferId write = kNoBuffer;
};

Access AccessOf(const EmbedOp& op) {
  if (op.accumulate) return {{op.out}, op.out};
  return {{}, op.out};
}
Access AccessOf(const InputOp& op) { return {{}, op.out}; }
Access AccessOf(const NormOp& op) { return {{op.in}, op.out}; }
Access AccessOf(const LinearOp& op) {
  if (op.accumulate) return {{op.in, op.out}, op.out};
  return {{op.in}, op.out};
}
Access AccessOf(const RouteOp& op) { return {{op.logits, op.in}, op.out}; }
Access AccessOf(const CombineOp& op) {
  if (op.accumulate) return {{op.in, op.out}, op.out};
  return {{op.in}, op.out};
}
Access AccessOf(const RopeStoreOp& op) { return {{op.q, op.k, op.v}, op.q}; }
Access AccessOf(const AttentionOp& op) { return {{op.q}, op.out}; }
Access AccessOf(const ExchangeOp& op) { return {{op.in}, op.out}; }
Access AccessOf(const ActivationOp& op) { return {{op.in, op.up}, op.out}; }
Access AccessOf(const MixOp& op) { return {{op.a, op.b}, op.out}; }
Access AccessOf(const HeadOp& op) { return {{op.in}, kNoBuffer}; }

// Returns the projections that also make tables of relative positions, from rows that take no
// scales.
std::vector<std::string> TensorsOf(const AttentionOp& op) {
  std::vector<std::string> names;
  if (!op.relative) return names;
  for (const std::optional<LinearOp>& table : {op.relative->keys, op.relative->queries}) {
    if (table) names.insert(names.end(), {table->weight.name, table->bias.name});
  }
  return names;
}

// Returns the tensors of an op that scales may change.
std::vector<std::string> TensorsOf(const GraphOp& op) {
  if (const auto* norm = std::get_if<NormOp>(&op)) return {norm->weight.name, norm->bias.name};
  if (const auto* linear = std::get_if<LinearOp>(&op)) {
    return {linear->weight.name, linear->bias.name};
  }
  if (const auto* head = std::get_if<HeadOp>(&op)) return {head->weight.name};
  if (const auto* embed = std::get_if<EmbedOp>(&op)) return {embed->table.name};
  if (const auto* mix = std::get_if<MixOp>(&op)) return {mix->a_weight.name, mix->b_weight.name};
  if (const auto* attention = std::get_if<AttentionOp>(&op)) return TensorsOf(*attention);
  return {};
}

class Finder {
 public:
  explicit Finder(const Model& model) : model_(model), ops_(model.graph.ops) {
    for (const GraphOp& op : ops_) {
      accesses_.push_back(std::visit([](const auto& each) { return AccessOf(each); }, op));
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (const std::string& name : TensorsOf(ops_[i])) {
        if (!name.empty()) users_[name].push_back(i);
      }
    }
  }

  std::vector<SmoothingGroup> Find() const {
    std::map<size_t, std::vector<size_t>> by_writer;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const auto* const linear = std::get_if<LinearOp>(&ops_[i]);
      if (linear != nullptr) by_writer[WriterOf(linear->in, i)].push_back(i);
    }
    std::vector<SmoothingGroup> groups;
    std::map<std::string, size_t> group_of;  // by tensor
    for (auto& [writer, readers] : by_writer) {
      const LinearOp& first = Linear(readers.front());
      const size_t index = group_of.try_emplace(first.weight.name, groups.size()).first->second;
      for (const size_t reader : readers) group_of.try_emplace(Linear(reader).weight.name, index);
      if (index < groups.size()) {  // layers that share their tensors
        std::ranges::copy(readers, std::back_inserter(groups[index].readers));
        continue;
      }
      SmoothingGroup group = {.readers = std::move(readers),
                              .width = model_.graph.buffers[first.in].width};
      if (writer != kOutside && TakesScales(writer, group)) FindProducer(writer, &group);
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  const LinearOp& Linear(size_t op) const { return std::get<LinearOp>(ops_[op]); }

  // Returns the last op before `op` that writes the buffer.
  size_t WriterOf(BufferId buffer, size_t op) const {
    while (op-- > 0) {
      if (accesses_[op].write == buffer) return op;
    }
    return kOutside;
  }

  // Returns the ops that read the output of `writer`.
  std::vector<size_t> ReadersOf(size_t writer) const {
    const BufferId buffer = accesses_[writer].write;
    std::vector<size_t> readers;
    size_t op = writer + 1;
    for (; op < ops_.size(); ++op) {
      if (std::ranges::count(accesses_[op].reads, buffer) > 0) readers.push_back(op);
      if (accesses_[op].write == buffer) break;
    }
    if (op == ops_.size() && buffer == model_.graph.output) readers.push_back(kOutside);
    for (const GraphState& state : model_.graph.states) {
      const bool seen = state.buffer == buffer && state.ops > writer && state.ops <= op;
      if (seen) readers.push_back(kOutside);
    }
    return readers;
  }

  // Returns whether only ops in `allowed` read the tensor.
  bool IsOwn(const std::string& tensor, const std::vector<size_t>& allowed) const {
    if (tensor.empty()) return true;
    return std::ranges::all_of(users_.at(tensor),
                               [&](size_t user) { return std::ranges::count(allowed, user) > 0; });
  }

  // Returns whether only the group's projections read the output of `writer`, and all can take
  // scales.
  bool TakesScales(size_t writer, const SmoothingGroup& group) const {
    return ReadersOf(writer) == group.readers &&
           std::ranges::all_of(group.readers, [&](size_t reader) {
             const LinearOp& linear = Linear(reader);
             const bool rows = linear.one_matrix() && linear.layout == MatrixLayout::kOutIn &&
                               linear.weight.run == 0;
             return (rows || linear.position_wise()) && IsOwn(linear.weight.name, group.readers);
           });
  }

  void FindProducer(size_t writer, SmoothingGroup* group) const {
    using Producer = SmoothingGroup::Producer;
    if (const auto* norm = std::get_if<NormOp>(&ops_[writer])) {
      const bool plain = norm->weight.present() && norm->weight_offset == 0 &&
                         norm->width == group->width && IsOwn(norm->weight.name, {writer}) &&
                         IsOwn(norm->bias.name, {writer});
      if (plain) SetProducer(Producer::kNorm, writer, group);
    } else if (const auto* gated = std::get_if<ActivationOp>(&ops_[writer])) {
      const size_t up = gated->up == kNoBuffer ? kOutside : WriterOf(gated->up, writer);
      if (IsScalable(up, writer)) SetProducer(Producer::kUp, up, group);
    } else if (const auto* attention = std::get_if<AttentionOp>(&ops_[writer])) {
      const size_t store = StoreOf(attention->layer, writer);
      if (attention->xsa || store == kOutside) return;  // XSA compares directions of values
      const size_t value = WriterOf(std::get<RopeStoreOp>(ops_[store]).v, store);
      if (!IsScalable(value, store)) return;
      group->head_dim = model_.config.head_dim;
      group->group = model_.config.heads / model_.config.kv_heads;
      SetProducer(Producer::kValue, value, group);
    }
  }

  static void SetProducer(SmoothingGroup::Producer producer, size_t op, SmoothingGroup* group) {
    group->producer = producer;
    group->producer_op = op;
  }

  size_t StoreOf(int32_t layer, size_t op) const {
    while (op-- > 0) {
      const auto* const store = std::get_if<RopeStoreOp>(&ops_[op]);
      if (store != nullptr && store->layer == layer) return op;
    }
    return kOutside;
  }

  // Returns whether `op` is a projection whose output only `reader` reads, once, and whose rows may
  // be scaled.
  bool IsScalable(size_t op, size_t reader) const {
    if (op == kOutside) return false;
    const auto* const linear = std::get_if<LinearOp>(&ops_[op]);
    if (linear == nullptr || linear->accumulate || !linear->one_matrix()) return false;
    if (linear->layout != MatrixLayout::kOutIn || linear->weight.run != 0) return false;
    // If several projections share the tensor, each must have its own rows of it.
    const auto sharers = std::ranges::count_if(users_.at(linear->weight.name), [&](size_t user) {
      const auto* const other = std::get_if<LinearOp>(&ops_[user]);
      return other == nullptr || other->weight.first == linear->weight.first;
    });
    return sharers == 1 && ReadersOf(op) == std::vector{reader} &&
           std::ranges::count(accesses_[reader].reads, linear->out) == 1 &&
           IsOwn(linear->bias.name, {op});
  }

  const Model& model_;
  const std::vector<GraphOp>& ops_;
  std::vector<Access> accesses_;
  std::map<std::string, std::vector<size_t>> users_;  // of tensors
};

}  // namespace

std::vector<SmoothingGroup> FindSmoothingGroups(const Model& model) { return Finder(model).Find(); }

}  // namespace sluice::verify
