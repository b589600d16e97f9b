// Reads and replays a journal from a file in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "engine/journal/journal_replay.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

// Returns the file; each input overwrites it.
int File() {
  static const int file = memfd_create("journal", 0);
  return file;
}

void Fill(const uint8_t* data, size_t size) {
  SLUICE_CHECK(ftruncate(File(), 0) == 0);
  SLUICE_CHECK(pwrite(File(), data, size, 0) == static_cast<ssize_t>(size));
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  sluice::Fill(data, size);
  auto reader = sluice::JournalReader::Open("/proc/self/fd/" + std::to_string(sluice::File()));
  SLUICE_CHECK(reader.ok());
  const auto replay = sluice::ReplayJournal(&*reader);
  SLUICE_CHECK(replay.ok() || !replay.status().message().empty());
  return replay.ok();
}
