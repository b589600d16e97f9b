// Included by every source in which tools/plant.py plants faults.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

// The environment's settings for a run. Device code in the emulator may call these functions, so
// their accesses to memory are not checked like its own.
struct SluicePlantedRun {
  [[gnu::no_sanitize("thread")]] SluicePlantedRun() {
    if (const char* const text = std::getenv("SLUICE_PLANTED")) chosen = std::atoi(text);
    const char* const path = std::getenv("SLUICE_REACHED");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    struct stat facts = {};
    if (file < 0 || fstat(file, &facts) != 0) return;
    void* const bytes = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ | PROT_WRITE,
                             MAP_SHARED, file, 0);
    close(file);
    if (bytes != MAP_FAILED) reached = static_cast<char*>(bytes);
  }

  int chosen = 0;           // the number of the run's fault
  char* reached = nullptr;  // one byte for each fault, shared by the processes of a run
};

// Returns whether the run has fault `number`, and records that the run reaches its place.
[[gnu::no_sanitize("thread")]] inline bool SluicePlanted(int number) {
  static const SluicePlantedRun run;
  if (run.reached != nullptr) __atomic_store_n(run.reached + number, 1, __ATOMIC_RELAXED);
  return run.chosen == number;
}
