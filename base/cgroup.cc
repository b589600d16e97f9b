#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace sluice {
namespace {

// Removes the part before the first of `separators` (or all) from the front of `text` and returns
// it.
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

template <typename T>
std::optional<T> Smaller(std::optional<T> a, std::optional<T> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<int> ReadV2(const std::string& folder, FileReader read) {
  const std::optional<std::string> text = read(folder + "/cpu.max");
  return text ? ParseCpuMax(*text) : std::nullopt;
}

std::optional<int> ReadV1(const std::string& folder, FileReader read) {
  const std::optional<std::string> quota = read(folder + "/cpu.cfs_quota_us");
  const std::optional<std::string> period = read(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  std::string_view first_line = *quota;  // -1 if there is no limit
  return ParseCpuMax(std::string(TakeUntil("\n", &first_line)) + " " + *period);
}

// Returns the least value of the folders from mount + path up to the mount.
template <typename ReadFolder>
auto Least(const std::string& mount, std::string_view path, ReadFolder read_folder) {
  decltype(read_folder(mount)) least;
  while (path.starts_with('/') && path.size() > 1) {
    least = Smaller(least, read_folder(mount + std::string(path)));
    path = path.substr(0, path.rfind('/'));
  }
  return Smaller(least, read_folder(mount));
}

// Returns the number of bytes in a file, or nullopt if it does not hold a number ("max" for
// example).
std::optional<int64_t> Bytes(const std::string& path, FileReader read) {
  const std::optional<std::string> text = read(path);
  if (!text) return std::nullopt;
  std::string_view first_line = *text;
  return ParsePositive(TakeUntil("\n", &first_line));
}

// Returns limit - usage, at least 0, of two such files.
std::optional<int64_t> Rest(const std::string& limit_path, const std::string& usage_path,
                            FileReader read) {
  const std::optional<int64_t> limit = Bytes(limit_path, read);
  if (!limit) return std::nullopt;
  return std::max<int64_t>(*limit - Bytes(usage_path, read).value_or(0), 0);
}

// Returns MemAvailable of /proc/meminfo ("MemAvailable:   123 kB") in bytes.
std::optional<int64_t> Available(FileReader read) {
  const std::optional<std::string> text = read("/proc/meminfo");
  if (!text) return std::nullopt;
  std::string_view lines = *text;
  while (!lines.empty()) {
    std::string_view line = TakeUntil("\n", &lines);
    if (TakeUntil(":", &line) != "MemAvailable") continue;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::optional<int64_t> kib = ParsePositive(TakeUntil(" ", &line));
    if (kib && *kib < INT64_MAX / 1024) return *kib * 1024;
  }
  return std::nullopt;
}

// Returns the least value of the cgroups in /proc/self/cgroup and their ancestors. `v2` and `v1`
// read one folder each; `v1` reads the folders of `controller`.
template <typename T, typename ReadV2, typename ReadV1>
std::optional<T> MinOfCgroups(std::string_view controller, FileReader read, ReadV2 v2, ReadV1 v1) {
  const std::optional<std::string> membership = read("/proc/self/cgroup");
  if (!membership) return std::nullopt;
  std::optional<T> least;
  std::string_view lines = *membership;
  while (!lines.empty()) {  // "<id>:<controllers, empty in v2>:<path>"
    std::string_view path = TakeUntil("\n", &lines);
    TakeUntil(":", &path);
    std::string_view controllers = TakeUntil(":", &path);
    if (controllers.empty()) least = Smaller(least, Least("/sys/fs/cgroup", path, v2));
    while (!controllers.empty()) {
      if (TakeUntil(",", &controllers) != controller) continue;
      least = Smaller(least, Least("/sys/fs/cgroup/" + std::string(controller), path, v1));
    }
  }
  return least;
}

}  // namespace

std::optional<std::string> ReadSystemFile(const std::string& path) {
  static const char* const root = std::getenv(kSystemRootVariable);
  std::ifstream file;
  if (root != nullptr) file.open(root + path);
  if (!file.is_open()) file.open(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<int> ParseCpuMax(std::string_view text) {
  std::string_view line = TakeUntil("\n", &text);
  const std::optional<int64_t> quota = ParsePositive(TakeUntil(" ", &line));
  const std::optional<int64_t> period = ParsePositive(line);
  if (!quota || !period) return std::nullopt;
  const int64_t cpus = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::min<int64_t>(cpus, 1 << 20));
}

std::optional<int> CgroupCpus(FileReader read) {
  return MinOfCgroups<int>(
      "cpu", read, [&](const std::string& folder) { return ReadV2(folder, read); },
      [&](const std::string& folder) { return ReadV1(folder, read); });
}

std::optional<int64_t> CgroupMemory(FileReader read) {
  return MinOfCgroups<int64_t>(
      "memory", read,
      [&](const std::string& folder) { return Bytes(folder + "/memory.max", read); },
      [&](const std::string& folder) { return Bytes(folder + "/memory.limit_in_bytes", read); });
}

std::optional<int64_t> CgroupFreeMemory(FileReader read) {
  const auto granted = MinOfCgroups<int64_t>(
      "memory", read,
      [&](const std::string& folder) {
        return Rest(folder + "/memory.max", folder + "/memory.current", read);
      },
      [&](const std::string& folder) {
        return Rest(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes", read);
      });
  return Smaller(granted, Available(read));
}

}  // namespace sluice
