// The CPUs and the memory that the process's cgroup grants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace sluice {

// Returns the contents of a file, or nullopt if it cannot be read.
using FileReader = absl::FunctionRef<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> ReadSystemFile(const std::string& path);

// The environment variable with a folder for tests: a file in it replaces the system's file of the
// same path.
inline constexpr char kSystemRootVariable[] = "SLUICE_TEST_SYSTEM_ROOT";

// Parses "<quota> <period>" in microseconds as in cgroup v2's cpu.max. Returns the quota in whole
// CPUs, rounded up, or nullopt for "max ..." and for anything malformed.
std::optional<int> ParseCpuMax(std::string_view text);

// Returns the least CPU quota of the cgroup in /proc/self/cgroup and of its ancestors, or nullopt
// if there is no limit. Reads both v2 and v1. If the container does not see a path, reads the root
// instead.
std::optional<int> CgroupCpus(FileReader read);

// Returns the least memory limit of the same cgroups in bytes, or nullopt if there is no limit.
std::optional<int64_t> CgroupMemory(FileReader read);

// Returns the bytes that may still be allocated: the least of limit - usage (at least 0) of the
// same cgroups and of MemAvailable in /proc/meminfo. Returns nullopt if none can be read.
std::optional<int64_t> CgroupFreeMemory(FileReader read);

}  // namespace sluice
