#include "loadtest/load/progress.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::load {
namespace {

constexpr char kClearLine[] = "\r\033[K";

}  // namespace

std::string ProgressLine(const std::string& title, double share, int64_t sent, int64_t done,
                         int64_t missed) {
  constexpr size_t kWidth = 24;
  const double bounded = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<size_t>(bounded * kWidth);
  std::string line = absl::StrFormat("%s [%s%s] %3.0f%%  %d sent, %d in flight", title,
                                     std::string(filled, '#'), std::string(kWidth - filled, '.'),
                                     100 * bounded, sent, std::max<int64_t>(sent - done, 0));
  if (missed > 0) absl::StrAppend(&line, ", ", missed, " missed");
  return line;
}

Progress::Progress(std::ostream* out, bool terminal, std::string title, nanoseconds duration,
                   const Live* live)
    : out_(out), terminal_(terminal), title_(std::move(title)), duration_(duration), live_(*live) {
  if (out_ == nullptr) return;
  start_ = Clock::Real()->Now();
  const nanoseconds period = terminal_ ? std::chrono::milliseconds(250) : std::chrono::seconds(10);
  thread_.emplace(Clock::Real(), start_ + period, [this, period, next = start_ + period]() mutable {
    Draw();
    return next += period;
  });
}

Progress::~Progress() {
  if (!thread_) return;
  thread_.reset();
  if (terminal_) *out_ << kClearLine << std::flush;
}

void Progress::Draw() {
  const std::chrono::duration<double> passed = Clock::Real()->Now() - start_;
  const std::string line = ProgressLine(title_, passed / std::chrono::duration<double>(duration_),
                                        live_.sent.load(), live_.done.load(), live_.missed.load());
  if (terminal_) {
    *out_ << kClearLine << line << std::flush;
  } else {
    *out_ << line << std::endl;
  }
}

}  // namespace sluice::load
