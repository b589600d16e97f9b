// The measured costs of one ladder, for simulations of other ladders.
#pragma once

#include <vector>

#include "engine/schedule/cost_model.h"

namespace sluice {

// Predicts the seconds of a step in any bucket from the law of a cost model and its corrections,
// which exist only for buckets that ran.
//   * If the device computes only the tokens of a batch, a step costs the same on every packed
//     ladder. It gets the correction of the smallest measured bucket that holds its tokens: its
//     bucket on the measured ladder.
//   * Otherwise a bucket that ran has its own correction. Any other packed bucket gets a correction
//     between the corrections of the next smaller and the next larger bucket, by the logarithm of
//     its tokens. Below the smallest and above the largest bucket, their corrections hold.
//   * A padded bucket that did not run has no correction.
class CarriedCosts {
 public:
  explicit CarriedCosts(const CostModel& costs);

  // Returns the predicted seconds, as CostModel::Estimate.
  double operator()(const StepShape& step) const;
  const ComputedRows& rows() const { return law_.rows(); }

 private:
  double Correction(const StepShape& step) const;

  CostModel law_;
  std::vector<BucketCost> buckets_;  // in the order of Bucket
};

}  // namespace sluice
