// Changing what requests share, for tests that build requests step by step.
#pragma once

#include <memory>

#include "engine/request.h"

namespace sluice {

// Returns the spec behind `pointer`, to be changed: a new one if there is none, a copy of its own
// if others share it.
inline RequestSpec& Mutable(std::shared_ptr<const RequestSpec>& pointer) {
  if (pointer == nullptr) {
    pointer = std::make_shared<RequestSpec>();
  } else if (pointer.use_count() > 1) {
    pointer = std::make_shared<RequestSpec>(*pointer);
  }
  return const_cast<RequestSpec&>(*pointer);  // it was made here, and not const
}

}  // namespace sluice
