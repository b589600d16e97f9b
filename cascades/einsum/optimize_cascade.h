// Rewrites a cascade into the cheapest equal one that the rules find.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/cost.h"
#include "cascades/einsum/device_description.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

struct CostedCascade {
  Cascade cascade;
  Analysis analysis;
  CostEstimate cost;
};

struct OptimizedCascade {
  CostedCascade given;     // with the conditions that its einsums inherit
  CostedCascade cheapest;  // `given`, if no other is cheaper
  int64_t compared = 0;    // equal cascades, including the given one
  bool complete = true;    // false if a limit ended the search
};

// Searches with the rules of StagesOf (extract.h), for one output after another. A rank with a
// symbol that is larger than `chunk` and that some einsum reduces may be cut into chunks of that
// size. Passes are counted over the stream of the given cascade. Inputs and outputs keep their
// names, homes and ranks; outputs are as in TermsOf. Returns InvalidArgument as TermsOf and Analyze
// do. Requires a cascade that Check accepts.
absl::StatusOr<OptimizedCascade> OptimizeCascade(const Cascade& cascade, const Sizes& sizes,
                                                 const DeviceDescription& device,
                                                 int64_t chunk = 512);

}  // namespace sluice::einsum
