// What a cascade costs on a device: an estimate that orders variants, not a prediction of times.
//
//   const auto analysis = Analyze(cascade, sizes);
//   if (analysis.ok()) Use(Estimate(cascade, *analysis, device).seconds);
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/device_description.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// The times of a pass, each as if the others were nothing: the pass takes the longest.
struct PassEstimate {
  double transfer_seconds = 0;
  double flops_seconds = 0;
  double exponentials_seconds = 0;
  double footprint_bytes = 0;  // of one work item
  std::string level;           // the nearest that holds the footprint

  double seconds() const;
};

struct CostEstimate {
  double seconds = 0;
  std::vector<PassEstimate> passes;
  int64_t work_items = 0;     // that can be computed at the same time
  double usable_workers = 0;  // work items over the rounds that the workers need for them
  int64_t launches = 0;
};

// The least time that a device could take: each byte is moved once, and all workers run at their
// peaks.
struct Roofline {
  double bytes = 0;
  double seconds = 0;
  std::string bound;  // "multiply-adds", "exponentials", or the level that bytes come from
};

// `resident_bytes` are those that the work is a part of and that are read again and again, such as
// all weights of a model: they come from the nearest shared level that holds them.
Roofline RooflineOf(const Cascade& cascade, const Analysis& analysis,
                    const DeviceDescription& device, double resident_bytes);

// What an estimate depends on beside the cascade and the device.
struct Circumstances {
  // The bytes of weights and KV pages that are read again and again, of which the cascade reads
  // some or all. They come from the nearest shared level that holds them; by default from the
  // memory.
  double resident_bytes = std::numeric_limits<double>::infinity();
  // The work is divided into no more items, although its results would allow it.
  int64_t most_work_items = std::numeric_limits<int64_t>::max();
};

// Returns the sum of the passes and the launches. Work is divided along all ranks of the results in
// the arena (rows, columns, KV heads, chunks with partials) but `group` and `head_dim`. The bytes
// of shared levels move one after the other, because they come the same way; those of a worker's
// own level move meanwhile. Returns InvalidArgument as Analyze does.
absl::StatusOr<CostEstimate> Estimate(const Cascade& cascade, const Sizes& sizes,
                                      const DeviceDescription& device,
                                      const Circumstances& circumstances = {});

// Returns the same, given the facts that Analyze returned for this cascade.
CostEstimate Estimate(const Cascade& cascade, const Analysis& analysis,
                      const DeviceDescription& device, const Circumstances& circumstances = {});

}  // namespace sluice::einsum
