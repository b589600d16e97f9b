// Where requests are counted that are refused before the engine has them.
#pragma once

#include <string_view>

namespace sluice {

// Thread-safe.
class RefusalObserver {
 public:
  virtual ~RefusalObserver() = default;
  // `model` is empty unless it is a served one, so that callers cannot make up metric labels.
  virtual void OnRefused(std::string_view model, std::string_view reason) = 0;
};

}  // namespace sluice
