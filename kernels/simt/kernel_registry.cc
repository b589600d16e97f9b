#include "kernels/simt/kernel_registry.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <string_view>

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

// Returns the type that `text` names after "Argument = ", without namespaces. Compilers write an
// unnamed namespace in different ways.
std::string ArgumentOf(std::string text) {
  constexpr std::string_view kBegin = "Argument = ";
  const size_t begin = text.find(kBegin);
  if (begin == std::string::npos) return text;
  text = text.substr(begin + kBegin.size());
  if (text.ends_with(']')) text.pop_back();
  for (const std::string_view unnamed : {"{anonymous}", "(anonymous namespace)", "<unnamed>"}) {
    for (size_t at; (at = text.find(unnamed)) != std::string::npos;) text.erase(at, unnamed.size());
  }
  for (size_t at; (at = text.find("::")) != std::string::npos;) {
    size_t scope = at;
    while (scope > 0 && (std::isalnum(text[scope - 1]) != 0 || text[scope - 1] == '_')) --scope;
    text.erase(scope, at + 2 - scope);
  }
  return text;
}

}  // namespace

void RegisterKernel(const kernels::cuda::Kernel& kernel, const char* type) {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  registry.kernels[kernel.function].name = std::string(kernel.name) + "(" + ArgumentOf(type) + ")";
}

void NoteLaunched(const kernels::cuda::Kernel& kernel) {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  registry.kernels[kernel.function].launched = true;
}

std::vector<RegisteredKernel> RegisteredKernels() {
  Registry& registry = Kernels();
  const std::lock_guard lock(registry.mutex);
  std::vector<RegisteredKernel> kernels;
  kernels.reserve(registry.kernels.size());
  for (const auto& [function, record] : registry.kernels)
    kernels.push_back({record.name, function});
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return kernels;
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
