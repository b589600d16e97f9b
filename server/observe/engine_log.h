// A line for each thing that the engine does of its own accord, as an observer of traces.
#pragma once

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Thread-safe. A review that changed the ladder is information, one that did not is for debugging;
// a plan that could not be prepared and a notice are warnings.
class EngineLog final : public Observer {
 public:
  explicit EngineLog(Log* log) : log_(log) {}

  void OnPlan(const PlanTrace& trace) override;
  void OnReview(const Model& model, const OptimizeReport& report) override;
  void OnNotice(const Model& model, std::string_view notice) override;

 private:
  Log* const log_;
};

}  // namespace sluice
