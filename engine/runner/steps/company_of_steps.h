// The requests of each step, as explanations name them. Used by the scheduling thread alone.
#pragma once

#include <memory>
#include <span>

#include "engine/engine_stats.h"
#include "engine/runner/requests/active_request.h"

namespace sluice {

class CompanyOfSteps {
 public:
  // Returns the requests of a step, whose rows are neighbours. Steps of the same requests, one
  // after another, have the same one, so that nothing is allocated while requests neither come nor
  // go.
  std::shared_ptr<const StepCompany> Of(std::span<RequestRow* const> rows);

 private:
  bool IsLatest(std::span<RequestRow* const> rows) const;

  std::shared_ptr<const StepCompany> latest_ = std::make_shared<StepCompany>();
};

}  // namespace sluice
