// Parses bytes as a safetensors file.
#include "engine/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

// Checks that the tensors are contiguous in the file and have their stated sizes.
void CheckEntries(const std::vector<SafetensorsEntry>& entries, std::string_view file) {
  const char* next = entries.empty() ? nullptr : entries.front().data.data();
  for (const SafetensorsEntry& entry : entries) {
    SLUICE_CHECK(entry.data.data() == next);
    next += entry.data.size();
    SLUICE_CHECK(!entry.name.empty() && entry.shape.size() <= 8);
    size_t elements = 1;
    for (const int64_t extent : entry.shape) {
      SLUICE_CHECK(extent >= 0);
      elements *= static_cast<size_t>(extent);
    }
    SLUICE_CHECK(elements == 0 ? entry.data.empty() : entry.data.size() % elements == 0);
  }
  SLUICE_CHECK(entries.empty() || next == file.data() + file.size());
  SLUICE_CHECK(entries.empty() || entries.front().data.data() >= file.data() + 8);
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view file = sluice::fuzz::AsText(data, size);
  const auto entries = sluice::ParseSafetensors(file);
  if (entries.ok()) {
    sluice::CheckEntries(*entries, file);
  } else {
    sluice::fuzz::CheckRefusal(entries.status());
  }
  return entries.ok();
}
