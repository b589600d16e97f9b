#include "base/interruption.h"

#include <utility>

namespace sluice {

thread_local const Interruptible* Interruptible::innermost = nullptr;

Interruptible::Interruptible(std::function<absl::Status()> check)
    : check_(std::move(check)), outer_(innermost) {
  innermost = this;
}

Interruptible::~Interruptible() { innermost = outer_; }

absl::Status CheckInterruption() {
  const Interruptible* const scope = Interruptible::innermost;
  return scope == nullptr ? absl::OkStatus() : scope->check_();
}

}  // namespace sluice
