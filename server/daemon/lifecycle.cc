#include "server/daemon/lifecycle.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Waits for SIGTERM or SIGINT and returns it.
int WaitForTermination(const std::function<void()>& on_hangup) {
  sigset_t awaited = TerminationSignals();
  sigaddset(&awaited, SIGHUP);
  int received = 0;
  while (sigwait(&awaited, &received) != 0 || received == SIGHUP) {
    if (received == SIGHUP) on_hangup();
  }
  return received;
}

// Waits for the next SIGTERM or SIGINT and ends the process with the status 128 + signal. Runs no
// destructors, so it does not wait for any thread.
[[noreturn]] void ExitAtNextTermination() {
  const sigset_t signals = TerminationSignals();
  int received = 0;
  while (sigwait(&signals, &received) != 0) {
  }
  _exit(128 + received);
}

}  // namespace

void BlockSignals() {
  sigset_t signals = TerminationSignals();
  sigaddset(&signals, SIGHUP);
  SLUICE_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  ::signal(SIGPIPE, SIG_IGN);
}

Termination::Termination(std::function<void()> on_hangup) : state_(std::make_shared<State>()) {
  state_->on_hangup = std::move(on_hangup);
  std::thread([state = state_] {
    const int received = WaitForTermination(state->on_hangup);
    state->signal = received;
    state->signal.notify_all();
    ExitAtNextTermination();
  }).detach();
}

int Termination::Await() {
  state_->signal.wait(0);
  return state_->signal;
}

void ExitAfter(nanoseconds delay) {
  std::thread([end = Clock::Real()->Now() + delay] {
    Mutex mu;
    CondVar never;
    MutexLock lock(&mu);
    while (Clock::Real()->Now() < end) Clock::Real()->WaitUntil(&never, &mu, end);
    std::_Exit(kHungStatus);
  }).detach();
}

}  // namespace sluice
