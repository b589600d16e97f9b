#include "engine/cuda/joined_graph.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/norm.h"

namespace sluice {
namespace {

// Columns that begin at a multiple of this are aligned in every type.
constexpr int64_t kAlignedColumns = 8;

template <typename Op>
const Op* As(const GraphOp& op) {
  return std::get_if<Op>(&op);
}

class Joiner {
 public:
  Joiner(const Graph& graph, const LayersAlike& alike) : graph_(graph), alike_(alike) {}

  // Joins the layers that write to `parts`. `out` is the buffer with the result of the ops that
  // read them; these ops replace `last`.
  void Join(const std::vector<BufferId>& parts, const std::string& name, BufferId last,
            const std::string& out) {
    if (!MayJoin(parts)) return;
    int64_t width = 0;
    const BufferId whole = AddBuffer(name, 0);
    for (const BufferId part : parts) {
      graph_.buffers[part].within = whole;
      graph_.buffers[part].first = width;
      width += graph_.buffers[part].width;
    }
    graph_.buffers[whole].width = width;
    const BufferId result = AddBuffer(out, graph_.buffers[last].width);
    std::vector<GraphOp> ops;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      GraphOp& op = graph_.ops[i];
      if (auto* linear = std::get_if<LinearOp>(&op)) {
        if (linear->out == parts.front()) {
          i += Absorb(i, parts.size(), linear);
          linear->out = whole;
        }
        if (linear->in == last) linear->in = result;
      } else if (auto* attention = std::get_if<AttentionOp>(&op)) {
        if (attention->out == last) attention->out = result;
      } else if (auto* activation = std::get_if<ActivationOp>(&op)) {
        if (activation->out == last) activation->out = result;
      }
      ops.push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
    graph_.states.clear();  // they count ops
  }

  Graph Take() { return std::move(graph_); }

 private:
  BufferId AddBuffer(const std::string& name, int64_t width) {
    graph_.buffers.push_back({.name = name, .width = width});
    return static_cast<BufferId>(graph_.buffers.size() - 1);
  }

  // Moves the layers after op `i` into it and returns their number.
  size_t Absorb(size_t i, size_t parts, LinearOp* first) {
    for (size_t j = 1; j < parts; ++j) {
      auto& next = std::get<LinearOp>(graph_.ops[i + j]);
      first->more.push_back({.weight = std::move(next.weight),
                             .bias = std::move(next.bias),
                             .width = graph_.buffers[next.out].width});
    }
    return parts - 1;
  }

  bool MayJoin(std::span<const BufferId> parts) const {
    for (const BufferId part : parts) {
      if (graph_.buffers[part].width % kAlignedColumns != 0) return false;
    }
    const auto among = [&](BufferId id) { return std::ranges::find(parts, id) != parts.end(); };
    for (const GraphOp& op : graph_.ops) {
      // An activation that writes one part of a row would write between the other parts.
      const auto* const activation = As<ActivationOp>(op);
      if (activation == nullptr || !among(activation->out)) continue;
      if (!among(activation->in) || !among(activation->up)) return false;
    }
    for (const GraphOp& op : graph_.ops) {
      const auto* const norm = As<NormOp>(op);
      if (norm == nullptr || norm->width <= kernels::cuda::kMaxStridedDim) continue;
      if (among(norm->in)) return false;
    }
    size_t joined = 0, writers = 0;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const auto* const linear = As<LinearOp>(graph_.ops[i]);
      if (linear == nullptr) continue;
      writers += std::count(parts.begin(), parts.end(), linear->out);
      if (linear->out != parts.front()) continue;
      if (!IsRun(i, parts)) return false;
      joined += parts.size();
    }
    return joined > 0 && joined == writers;
  }

  // Returns whether the ops from `i` on are the layers that write to `parts` and may be joined.
  bool IsRun(size_t i, std::span<const BufferId> parts) const {
    const auto& first = std::get<LinearOp>(graph_.ops[i]);
    int64_t column = first.weight.first;
    for (size_t j = 0; j < parts.size(); ++j) {
      const auto* const op = i + j < graph_.ops.size() ? As<LinearOp>(graph_.ops[i + j]) : nullptr;
      if (op == nullptr || op->out != parts[j] || op->in != first.in || op->accumulate ||
          op->layout != first.layout || !op->one_matrix() ||
          op->bias.present() != first.bias.present() || (alike_ && !alike_(*op, first))) {
        return false;
      }
      const bool neighbours = op->weight.name == first.weight.name && op->weight.first == column;
      if (op->layout != MatrixLayout::kOutIn &&
          !(op->layout == MatrixLayout::kInOut && neighbours)) {
        return false;
      }
      column += graph_.buffers[parts[j]].width;
    }
    return true;
  }

  Graph graph_;
  const LayersAlike& alike_;
};

}  // namespace

Graph JoinProjections(const Graph& graph, bool gates, const LayersAlike& alike) {
  Joiner joiner(graph, alike);
  for (const GraphOp& op : graph.ops) {
    if (const auto* rope = As<RopeStoreOp>(op)) {
      joiner.Join({rope->q, rope->k, rope->v}, "qkv", rope->q, "attended");
      break;
    }
  }
  for (const GraphOp& op : graph.ops) {
    const auto* const activation = As<ActivationOp>(op);
    if (!gates || activation == nullptr || activation->up == kNoBuffer) continue;
    joiner.Join({activation->in, activation->up}, "gate_up", activation->out, "activated");
    break;
  }
  return joiner.Take();
}

}  // namespace sluice
