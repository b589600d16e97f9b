// The observer of requests that are refused before they reach the engine.
#pragma once

#include <string_view>

namespace sluice {

// Thread-safe. `model` is empty unless it names a served model, so that callers cannot make up
// metric labels.
class RefusalObserver {
 public:
  virtual ~RefusalObserver() = default;
  virtual void OnRefused(std::string_view model, std::string_view reason) = 0;
};

}  // namespace sluice
