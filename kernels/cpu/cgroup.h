// What the process's cgroup grants it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace sluice::kernels {

// Contents of a file, or nullopt when it cannot be read.
using ReadFile = absl::FunctionRef<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> ReadSystemFile(const std::string& path);

// "<quota> <period>" in microseconds as in cgroup v2's cpu.max, in whole CPUs rounded up. nullopt
// for "max ..." and for anything malformed.
std::optional<int> ParseCpuMax(std::string_view text);

// The least quota of the cgroup that /proc/self/cgroup names and of its ancestors (v2 and v1 are
// both read); nullopt when nothing limits. A path that a container does not see counts as the root.
std::optional<int> CgroupCpus(ReadFile read);

// Bytes that the same cgroups grant in all, the least of them; nullopt when nothing limits.
std::optional<int64_t> CgroupMemory(ReadFile read);

// Bytes that may still be taken: the least of limit - usage, not below 0, of the same cgroups, and
// of what /proc/meminfo calls available; nullopt when none of them can be read.
std::optional<int64_t> FreeMemory(ReadFile read);

}  // namespace sluice::kernels
