// A fingerprint of a loaded model's content, for callers that compare the models of two answers.
#pragma once

#include <memory>
#include <string>

#include "engine/model/model.h"
#include "server/models/model_target.h"

namespace sluice {

// Returns the model, loaded from the target, as a pointer that also carries the fingerprint of its
// content. The fingerprint is a hash of the contents of the target's files, the first bytes of each
// tensor of the checkpoint, and the quantization. It is the same in each copy of the files.
std::shared_ptr<const Model> WithContents(std::shared_ptr<const Model> model,
                                          const ModelTarget& target);

// Returns the fingerprint that a pointer of WithContents, or a copy of it, carries; empty for
// another pointer.
std::string ContentsOf(const std::shared_ptr<const Model>& model);

}  // namespace sluice
