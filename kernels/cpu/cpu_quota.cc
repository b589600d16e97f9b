#include "kernels/cpu/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace sluice::kernels {
namespace {

// Cuts what precedes the first of `separators` (or all) off the front of `text`.
std::string_view TakeUntil(std::string_view separators, std::string_view* text) {
  const size_t end = std::min(text->find_first_of(separators), text->size());
  const std::string_view taken = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return taken;
}

std::optional<int64_t> ParsePositive(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::optional<int> Smaller(std::optional<int> a, std::optional<int> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<int> ReadV2(const std::string& folder, ReadFile read) {
  const std::optional<std::string> text = read(folder + "/cpu.max");
  return text ? ParseCpuMax(*text) : std::nullopt;
}

std::optional<int> ReadV1(const std::string& folder, ReadFile read) {
  const std::optional<std::string> quota = read(folder + "/cpu.cfs_quota_us");
  const std::optional<std::string> period = read(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  std::string_view first_line = *quota;  // -1: none
  return ParseCpuMax(std::string(TakeUntil("\n", &first_line)) + " " + *period);
}

// Walks from mount + path up to the mount itself.
template <typename ReadFolder>
std::optional<int> Least(const std::string& mount, std::string_view path, ReadFolder read_folder) {
  std::optional<int> least;
  while (path.starts_with('/') && path.size() > 1) {
    least = Smaller(least, read_folder(mount + std::string(path)));
    path = path.substr(0, path.rfind('/'));
  }
  return Smaller(least, read_folder(mount));
}

}  // namespace

std::optional<int> ParseCpuMax(std::string_view text) {
  std::string_view line = TakeUntil("\n", &text);
  const std::optional<int64_t> quota = ParsePositive(TakeUntil(" ", &line));
  const std::optional<int64_t> period = ParsePositive(line);
  if (!quota || !period) return std::nullopt;
  const int64_t cpus = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::min<int64_t>(cpus, 1 << 20));
}

std::optional<int> CgroupCpus(ReadFile read) {
  const std::optional<std::string> membership = read("/proc/self/cgroup");
  if (!membership) return std::nullopt;
  const auto v1 = [&](const std::string& folder) { return ReadV1(folder, read); };
  const auto v2 = [&](const std::string& folder) { return ReadV2(folder, read); };
  std::optional<int> least;
  std::string_view lines = *membership;
  while (!lines.empty()) {  // "<id>:<controllers, none in v2>:<path>"
    std::string_view path = TakeUntil("\n", &lines);
    TakeUntil(":", &path);
    std::string_view controllers = TakeUntil(":", &path);
    if (controllers.empty()) least = Smaller(least, Least("/sys/fs/cgroup", path, v2));
    while (!controllers.empty()) {
      if (TakeUntil(",", &controllers) != "cpu") continue;
      least = Smaller(least, Least("/sys/fs/cgroup/cpu", path, v1));
    }
  }
  return least;
}

}  // namespace sluice::kernels
