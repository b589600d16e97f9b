#include "kernels/simt/kernel_registry.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace sluice::simt {
namespace {

struct Record {
  std::string name;
  bool launched = false;
};

struct Registry {
  std::mutex mutex;
  std::map<const void*, Record> kernels;  // by function
};

Registry& Kernels() {
  static auto* registry = new Registry();
  return *registry;
}

}  // namespace

void RegisterKernel(const kernels::cuda::Kernel& kernel, const char* type) {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  registry.kernels[kernel.function].name = std::string(kernel.name) + ": " + type;
}

void NoteLaunched(const kernels::cuda::Kernel& kernel) {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  registry.kernels[kernel.function].launched = true;
}

std::vector<std::string> NeverLaunched() {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& [function, record] : registry.kernels) {
    if (!record.launched) names.push_back(record.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sluice::simt
