#include "verify/probes.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace sluice::verify {
namespace {

// Returns the module whose output an op gives unchanged; empty if there is none.
struct ModuleOf {
  std::string operator()(const LinearOp& op) const {
    // The rows of experts are no rows of a module.
    return op.accumulate || op.index == MatrixIndex::kExpert ? "" : Module(op.weight.name);
  }
  std::string operator()(const NormOp& op) const {
    return op.scale == 1 ? Module(op.weight.name) : "";
  }
  std::string operator()(const EmbedOp& op) const {
    return op.accumulate || op.scale != 1 ? "" : Module(op.table.name);
  }
  template <typename Op>
  std::string operator()(const Op&) const {
    return "";
  }

 private:
  static std::string Module(const std::string& tensor) {
    return tensor.substr(0, tensor.rfind('.'));
  }
};

struct OutOf {
  template <typename Op>
  BufferId operator()(const Op& op) const {
    if constexpr (requires { op.out; }) {
      return op.out;
    } else {
      return kNoBuffer;
    }
  }
};

class Probes {
 public:
  Probes(const Model& model, const Golden& golden) : model_(model), golden_(golden) {
    const Graph& graph = model.graph;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      AddModule(op);
      AddStates(op);
    }
  }

  std::vector<Probe> Take() && { return std::move(probes_); }

 private:
  void AddModule(size_t op) {
    const GraphOp& graph_op = model_.graph.ops[op];
    const std::string module = std::visit(ModuleOf(), graph_op);
    if (module.empty()) return;
    const auto* linear = std::get_if<LinearOp>(&graph_op);
    if (linear != nullptr && linear->weight.run > 0) return;  // its outputs are not neighbours
    Add(op, std::visit(OutOf(), graph_op), absl::StrCat("module:", module),
        linear == nullptr ? 0 : FirstColumn(*linear));
  }

  // Returns the index of the layer's first output within the outputs of its module.
  static int64_t FirstColumn(const LinearOp& op) {
    switch (op.layout) {
      case MatrixLayout::kInOut:
        return op.weight.first;
      case MatrixLayout::kOutIn:
        break;
    }
    return op.weight.first / op.weight.shape[1];
  }

  void AddStates(size_t op) {
    const std::vector<GraphState>& states = model_.graph.states;
    for (size_t k = 0; k < states.size(); ++k) {
      if (states[k].ops == op + 1) Add(op, states[k].buffer, absl::StrCat("state_", k), 0);
    }
    if (op == FinalOp(model_.graph)) Add(op, model_.graph.output, "final", 0);
  }

  void Add(size_t op, BufferId buffer, std::string name, int64_t column) {
    if (!golden_.outputs.contains(name)) return;
    probes_.push_back({op, buffer, std::move(name), column, LayerOf(op)});
  }

  int32_t LayerOf(size_t op) const {
    int32_t layer = -1;
    for (const GraphState& state : model_.graph.states) layer += op >= state.ops ? 1 : 0;
    return layer;
  }

  const Model& model_;
  const Golden& golden_;
  std::vector<Probe> probes_;
};

}  // namespace

size_t FinalOp(const Graph& graph) {
  const size_t head = std::holds_alternative<HeadOp>(graph.ops.back()) ? 1 : 0;
  return graph.ops.size() - 1 - head;
}

std::vector<Probe> FindProbes(const Model& model, const Golden& golden) {
  return Probes(model, golden).Take();
}

}  // namespace sluice::verify
