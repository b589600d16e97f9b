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

void ExitAtOnce(int signal) { _exit(128 + signal); }

// Waits for SIGTERM or SIGINT and returns it.
int WaitForTermination(const std::function<void()>& on_hangup) {
  const sigset_t signals = TerminationSignals();
  sigset_t awaited = signals;
  sigaddset(&awaited, SIGHUP);
  int received = 0;
  while (sigwait(&awaited, &received) != 0 || received == SIGHUP) {
    if (received == SIGHUP) on_hangup();
  }
  // A handler replaces the default action, because the kernel exempts process 1 from default
  // actions, and in a container the daemon is process 1.
  struct sigaction action {};
  action.sa_handler = &ExitAtOnce;
  SLUICE_CHECK(sigaction(SIGTERM, &action, nullptr) == 0);
  SLUICE_CHECK(sigaction(SIGINT, &action, nullptr) == 0);
  SLUICE_CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0);
  return received;
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
