#include "client/interrupts.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "client/exit_code.h"

namespace sluice::client {
namespace {

sigset_t Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t interrupt = Interrupt();
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  listener_ = std::thread([this] { Listen(); });
}

Interrupts::~Interrupts() {
  ended_ = true;
  pthread_kill(listener_.native_handle(), SIGINT);
  listener_.join();
  const sigset_t interrupt = Interrupt();
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
}

void Interrupts::Set(std::function<void()> call) {
  absl::MutexLock lock(&mu_);
  call_ = std::move(call);
}

void Interrupts::Listen() {
  const sigset_t interrupt = Interrupt();
  int signal = 0;
  while (true) {
    sigwait(&interrupt, &signal);
    if (ended_) return;
    absl::MutexLock lock(&mu_);
    if (call_ == nullptr) _exit(kExitInterrupted);
    std::exchange(call_, nullptr)();
  }
}

}  // namespace sluice::client
