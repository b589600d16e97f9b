#include "base/mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace sluice {

// Entries are never freed but used again, so that the handler may walk the list at any time. If a
// name changes while the handler reads it, the output mixes both names.
struct MappingName::Entry {
  static constexpr size_t kTextBytes = 512;
  std::atomic<bool> taken{true};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0 outside the life of a name
  std::atomic<char> text[kTextBytes] = {};
  Entry* next = nullptr;
};

namespace {

std::atomic<MappingName::Entry*> all_entries{nullptr};

MappingName::Entry* TakeEntry() {
  for (auto* entry = all_entries.load(); entry != nullptr; entry = entry->next) {
    if (!entry->taken.exchange(true)) return entry;
  }
  auto* const made = new MappingName::Entry;
  made->next = all_entries.load();
  while (!all_entries.compare_exchange_weak(made->next, made)) {
  }
  return made;
}

void Write(const char* text, size_t size) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size);
}

// Returning repeats the fault. The handler was installed for one signal only, so the second fault
// ends the process.
void NameMapping(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (auto* entry = all_entries.load(); entry != nullptr; entry = entry->next) {
    if (address < entry->begin.load() || address >= entry->end.load()) continue;
    constexpr char kBegin[] = "sluiced: a file was cut while it was mapped (SIGBUS): ";
    constexpr char kEnd[] =
        "\nsluiced: replace model files by renaming, or set server.memory.copy_weights\n";
    char text[MappingName::Entry::kTextBytes];
    size_t size = 0;
    while (size < sizeof text && (text[size] = entry->text[size].load()) != 0) ++size;
    Write(kBegin, sizeof kBegin - 1);
    Write(text, size);
    Write(kEnd, sizeof kEnd - 1);
    return;
  }
}

}  // namespace

MappingName::MappingName(const void* data, size_t size, const std::string& text)
    : entry_(TakeEntry()) {
  Set(text);
  entry_->begin = reinterpret_cast<uintptr_t>(data);
  entry_->end = reinterpret_cast<uintptr_t>(data) + size;
}

MappingName::~MappingName() {
  entry_->end = 0;
  entry_->taken = false;
}

void MappingName::Set(const std::string& text) const {
  const size_t size = std::min(text.size(), Entry::kTextBytes - 1);
  for (size_t i = 0; i < size; ++i) entry_->text[i] = text[i];
  entry_->text[size] = 0;
}

void NameMappingsOnFault() {
  struct sigaction action {};
  action.sa_sigaction = &NameMapping;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  SLUICE_CHECK(sigaction(SIGBUS, &action, nullptr) == 0);
}

}  // namespace sluice
