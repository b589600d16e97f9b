#include "loadtest/load/cpu_meter.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace sluice::load {
namespace {

// Returns the user and system time of a thread. By proc(5), the name is in parentheses and may
// contain spaces; utime and stime are the 12th and 13th fields after it.
int64_t Ticks(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  int64_t user = 0;
  int64_t system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system)) {
    return 0;
  }
  return user + system;
}

std::map<int, int64_t> TicksByThread() {
  std::map<int, int64_t> ticks;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    int thread = 0;
    if (absl::SimpleAtoi(task.path().filename().string(), &thread)) {
      ticks[thread] = Ticks(task.path());
    }
  }
  return ticks;
}

}  // namespace

CpuMeter::CpuMeter() : at_start_(TicksByThread()), start_(std::chrono::steady_clock::now()) {}

CpuUse CpuMeter::Read() const {
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double ticks_per_core = elapsed * static_cast<double>(sysconf(_SC_CLK_TCK));
  CpuUse use;
  if (ticks_per_core <= 0) return use;
  for (const auto& [thread, ticks] : TicksByThread()) {
    const auto before = at_start_.find(thread);
    const int64_t used = ticks - (before == at_start_.end() ? 0 : before->second);
    const double share = static_cast<double>(used) / ticks_per_core;
    use.cores += share;
    use.busiest_thread = std::max(use.busiest_thread, share);
  }
  return use;
}

}  // namespace sluice::load
