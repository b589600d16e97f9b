#include "engine/engine.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace sluice {

absl::StatusOr<RequestId> Engine::ResolveAndSubmit(std::string_view name, std::string_view version,
                                                   MakeSubmission make, MonoTime received) {
  SLUICE_ASSIGN_OR_RETURN(const Named named, Find(name, version));
  SLUICE_ASSIGN_OR_RETURN(Submission made, make(named));
  return Submit(std::move(made.request), std::move(made.sink), received);
}

absl::StatusOr<Engine::Named> Engine::Find(std::string_view name, std::string_view version) const {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Resolve(name, version));
  return Named{std::move(model)};
}

absl::Status Engine::LoadAdapter(const Model& model, const AdapterSource& adapter) {
  return absl::UnimplementedError("this engine has fixed adapters");
}

absl::Status Engine::UnloadAdapter(const Model& model, std::string_view adapter) {
  return absl::UnimplementedError("this engine has fixed adapters");
}

absl::StatusOr<ReviewReport> Engine::ChooseLadder(std::string_view name, std::string_view version,
                                                  const LadderChoice& choice, bool keep) {
  return absl::UnimplementedError("this engine has fixed ladders");
}

absl::StatusOr<StrategyTrials> Engine::TryStrategies(std::string_view name,
                                                     std::string_view version) const {
  return absl::UnimplementedError("this engine cannot try strategies");
}

absl::StatusOr<StepDescription> Engine::DescribeStep(std::string_view name,
                                                     std::string_view version,
                                                     const StepSizes& step, bool profile) const {
  return absl::UnimplementedError("this engine cannot describe steps");
}

}  // namespace sluice
