#include "engine/model/check_tensors.h"

#include <variant>

#include "base/status_macros.h"
#include "engine/model/stored_int4.h"

namespace sluice {
namespace {

class TensorCheck {
 public:
  explicit TensorCheck(const Model& model) : model_(model) {}

  absl::Status operator()(const EmbedOp& op) { return Floats(op.table); }
  absl::Status operator()(const NormOp& op) { return Floats(op.weight, op.bias); }
  absl::Status operator()(const LinearOp& op) {
    SLUICE_RETURN_IF_ERROR(op.one_matrix() ? Matrix(op.weight) : Floats(op.weight));
    for (const std::string& name : op.more_matrices) {
      SLUICE_RETURN_IF_ERROR(Floats({.name = name, .shape = op.weight.shape}));
    }
    SLUICE_RETURN_IF_ERROR(Floats(op.bias));
    for (const LinearOp::JoinedLayer& layer : op.more) {
      SLUICE_RETURN_IF_ERROR(Matrix(layer.weight));
      SLUICE_RETURN_IF_ERROR(Floats(layer.bias));
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const AttentionOp& op) {
    if (!op.xsa_gate.empty()) {
      SLUICE_RETURN_IF_ERROR(Floats({.name = op.xsa_gate, .shape = {model_.config.heads}}));
    }
    SLUICE_RETURN_IF_ERROR(Floats(op.relative_bias));
    if (!op.relative) return absl::OkStatus();
    SLUICE_RETURN_IF_ERROR(Floats(op.relative->positions));
    if (op.relative->norm) SLUICE_RETURN_IF_ERROR((*this)(*op.relative->norm));
    for (const std::optional<LinearOp>& table : {op.relative->keys, op.relative->queries}) {
      if (table) SLUICE_RETURN_IF_ERROR((*this)(*table));
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const CombineOp& op) { return Floats(op.bias); }
  absl::Status operator()(const MixOp& op) { return Floats(op.a_weight, op.b_weight); }
  absl::Status operator()(const HeadOp& op) {
    SLUICE_RETURN_IF_ERROR(Matrix(op.weight));
    return Floats(op.bias);
  }
  // These have no weights.
  absl::Status operator()(const InputOp&) { return absl::OkStatus(); }
  absl::Status operator()(const RouteOp&) { return absl::OkStatus(); }
  absl::Status operator()(const RopeStoreOp&) { return absl::OkStatus(); }
  absl::Status operator()(const ExchangeOp&) { return absl::OkStatus(); }
  absl::Status operator()(const ActivationOp&) { return absl::OkStatus(); }

 private:
  absl::Status Floats(const TensorPart& part) {
    if (!part.present()) return absl::OkStatus();
    return model_.checkpoint.Find(part.name, part.shape).status();
  }
  absl::Status Floats(const TensorPart& a, const TensorPart& b) {
    SLUICE_RETURN_IF_ERROR(Floats(a));
    return Floats(b);
  }

  // A matrix of floats, of int8 or, in a checkpoint that has int4 layers, of their integers.
  absl::Status Matrix(const TensorPart& part) {
    const StoredQuantization& stored = model_.config.stored_quantization;
    if (model_.checkpoint.IsInt8(part.name)) {
      return model_.checkpoint.FindInt8(part.name, part.shape).status();
    }
    const absl::Status floats = Floats(part);
    if (floats.ok() || stored.format == StoredQuantization::Format::kNone ||
        stored.format == StoredQuantization::Format::kInt8) {
      return floats;
    }
    return ReadStoredInt4(model_.checkpoint, stored, part.name, part.shape[0], part.shape[1],
                          /*first=*/0, /*rows=*/1)
        .status();
  }

  const Model& model_;
};

}  // namespace

absl::Status CheckTensors(const Model& model) {
  TensorCheck check(model);
  for (const GraphOp& op : model.graph.ops) SLUICE_RETURN_IF_ERROR(std::visit(check, op));
  return absl::OkStatus();
}

}  // namespace sluice
