// Changes the shared part of a request, for tests that build requests step by step.
#pragma once

#include <memory>

#include "engine/request.h"

namespace sluice {

// Returns a modifiable spec for `pointer`: a new spec if it is null, a copy if other requests share
// the spec.
inline RequestSpec& Mutable(std::shared_ptr<const RequestSpec>& pointer) {
  if (pointer == nullptr) {
    pointer = std::make_shared<RequestSpec>();
  } else if (pointer.use_count() > 1) {
    pointer = std::make_shared<RequestSpec>(*pointer);
  }
  return const_cast<RequestSpec&>(*pointer);  // the object was created here and is not const
}

}  // namespace sluice
