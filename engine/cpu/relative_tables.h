// The tables of relative positions of a model's layers, computed when the model is loaded.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/relative_positions.h"

namespace sluice {

class RelativeTableMaker {
 public:
  // The arguments are not owned.
  RelativeTableMaker(const Model& model, const kernels::Context& context)
      : model_(model), context_(context) {}

  // Returns the tables of a layer. They are in f32, whatever the model's quantisation is. Only
  // projections that are stored quantised are multiplied as they are stored.
  absl::StatusOr<std::shared_ptr<const kernels::RelativePositions>> Make(
      const RelativeTables& tables);

  // Returns the bytes of all tables made so far.
  int64_t bytes() const { return bytes_; }

 private:
  // Reads the rows that all layers project, once.
  absl::Status ReadRows(const RelativeTables& tables);
  // Returns the projected rows.
  absl::StatusOr<std::vector<float>> Project(const LinearOp& op);

  const Model& model_;
  const kernels::Context& context_;
  std::vector<float> rows_;  // [2 span, hidden]
  int64_t bytes_ = 0;
};

}  // namespace sluice
