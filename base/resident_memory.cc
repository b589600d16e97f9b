#include "base/resident_memory.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>

#include "base/cgroup.h"

namespace sluice {

int64_t ResidentBytes() {
  const std::optional<std::string> text = ReadSystemFile("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;  // in pages; pages of files are shared
  if (!text || std::sscanf(text->c_str(), "%" SCNd64 " %" SCNd64 " %" SCNd64, &size, &resident,
                           &shared) != 3) {
    return 0;
  }
  return (resident - shared) * sysconf(_SC_PAGE_SIZE);
}

}  // namespace sluice
