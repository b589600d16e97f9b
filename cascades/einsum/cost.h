// The cost of a cascade on a device: an estimate to order variants, not a prediction of times.
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

// The times of a pass, each computed separately. The pass takes the longest of them.
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

// `resident_bytes` are all the bytes that are read repeatedly, such as all weights of a model,
// including the bytes of this work. They come from the nearest shared level that holds them.
Roofline RooflineOf(const Cascade& cascade, const Analysis& analysis,
                    const DeviceDescription& device, double resident_bytes);

// A rate of a device that a measurement has raised.
struct RaisedRate {
  std::string name;   // as Roofline::bound
  double factor = 1;  // above 1
};

// Raises the rates that bound RooflineOf until it is at most `seconds`, and returns each rate that
// was raised. Work that was measured to take less time than the roofline shows that a peak of the
// description is too low, for example because other processes slowed its measurement down. Requires
// `seconds` > 0.
std::vector<RaisedRate> RaiseCeilings(const Cascade& cascade, const Analysis& analysis,
                                      double resident_bytes, double seconds,
                                      DeviceDescription* device);

// Properties other than the cascade and the device that affect an estimate.
struct Circumstances {
  // The bytes of weights and KV pages that are read repeatedly. The cascade reads some or all of
  // them. They come from the nearest shared level that holds them; by default from the memory.
  double resident_bytes = std::numeric_limits<double>::infinity();
  // The most items that the work is divided into, even if its results would allow more.
  int64_t most_work_items = std::numeric_limits<int64_t>::max();
};

// Returns the sum of the passes and the launches. Work is divided along all ranks of the results in
// the arena (rows, columns, KV heads, chunks with partials) except `group` and `head_dim`. The
// bytes of shared levels move one after another, because they share a path; the bytes of a worker's
// own level move at the same time. Returns InvalidArgument as Analyze does.
absl::StatusOr<CostEstimate> Estimate(const Cascade& cascade, const Sizes& sizes,
                                      const DeviceDescription& device,
                                      const Circumstances& circumstances = {});

// Returns the same, given the facts that Analyze returned for this cascade.
CostEstimate Estimate(const Cascade& cascade, const Analysis& analysis,
                      const DeviceDescription& device, const Circumstances& circumstances = {});

}  // namespace sluice::einsum
