// The places in a model's graph whose outputs a golden has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "verify/golden.h"

namespace sluice::verify {

// Columns of a golden output to compare after an op has run; a buffer's row covers all of them.
struct Probe {
  size_t op;
  BufferId buffer;
  std::string name;
  int64_t column = 0;
  int32_t layer = 0;
};

// Returns the op whose output is the state after the last norm.
size_t FinalOp(const Graph& graph);

// Returns the probes of the outputs of positions, in the order of the ops.
std::vector<Probe> FindProbes(const Model& model, const Golden& golden);

}  // namespace sluice::verify
