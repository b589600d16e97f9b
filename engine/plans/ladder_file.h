// A file that keeps a fitted ladder and the measured costs between runs, so that a new pod starts
// warm.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/ladder/ladder.h"
#include "engine/ladder_choice.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// The file holds one JSON object:
//   {"sluice_ladder": 1,
//    "for": {"model", "version", "weights", "build", "device", "profile", "algorithms", "policy",
//            "max_tokens", "max_sequences"},            all strings
//    "ladder": see BucketsToJson,
//    "costs": see CostsToJson,
//    "kept": options of engine.ladder and their values, if a choice is kept}
// The file is only used if all of "for" matches. "weights" is a fingerprint of the architecture and
// of the names, types, shapes and first bytes of the tensors, not of their whole content. It
// distinguishes models, but does not protect against deliberate forgery.
class LadderFile {
 public:
  // `algorithms` is ExecutableModel::algorithms of the loaded model.
  LadderFile(std::string path, const Model& model, const BackendInfo& info,
             const std::string& algorithms, const LadderLimits& limits, PolicyKind policy);

  struct Content {
    Ladder ladder;
    CostState costs;
    LadderChoice kept{};
  };
  // Returns NotFound if there is no file. Returns FailedPrecondition if it was written for
  // something else; the message names the difference. Returns InvalidArgument if it is damaged or
  // its largest bucket does not match `limits`.
  absl::StatusOr<Content> Read() const;

  // Returns the name and version of the model that a file was written for, or nullopt if there is
  // no ladder file at this path.
  static std::optional<std::pair<std::string, std::string>> OwnerOf(const std::string& path);

  // Replaces the file atomically.
  absl::Status Write(const Ladder& ladder, const CostState& costs,
                     const LadderChoice& kept = {}) const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const LadderLimits limits_;
  std::vector<std::pair<std::string, std::string>> key_;
};

}  // namespace sluice
