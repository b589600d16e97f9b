// A trace observer that logs engine events that do not belong to a request.
#pragma once

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Thread-safe. Kernels, and reviews that changed the ladder, are logged at level info; other
// reviews at debug. Notices and plans that could not be prepared are warnings.
class EngineLog final : public Observer {
 public:
  // `log` is not owned and outlives this object.
  explicit EngineLog(Log* log) : log_(log) {}

  void OnPlan(const PlanTrace& trace) override;
  void OnReview(const Model& model, const ReviewReport& report) override;
  void OnKernels(const Model& model, std::string_view kernels) override;
  void OnNotice(const Model& model, std::string_view notice) override;

 private:
  Log* const log_;
};

}  // namespace sluice
