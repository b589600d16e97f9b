// Makes libFuzzer change the structure of JSON too. At its end, prints how many inputs the code
// accepted.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate_json.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

[[maybe_unused]] const int registered = std::atexit([] {
  const sluice::fuzz::InputCounts counts = sluice::fuzz::Inputs();
  std::fprintf(stderr, "stat::accepted_units: %lld\n", static_cast<long long>(counts.accepted));
});

// Returns 0 if the text is longer than `max_size`.
size_t Write(std::string_view text, size_t max_size, uint8_t* out) {
  if (text.size() > max_size) return 0;
  std::copy(text.begin(), text.end(), out);
  return text.size();
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::mt19937_64 random(seed);
  if (random() % 4 > 0) {
    const std::string_view text = sluice::fuzz::AsText(data, size);
    const auto changed = sluice::fuzz::MutateJson(text, text, random);
    const size_t written = changed.has_value() ? Write(*changed, max_size, data) : 0;
    if (written > 0) return written;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned seed) {
  std::mt19937_64 random(seed);
  const std::string_view first = sluice::fuzz::AsText(data1, size1);
  const std::string_view second = sluice::fuzz::AsText(data2, size2);
  if (random() % 4 > 0) {
    const auto changed = sluice::fuzz::MutateJson(first, second, random);
    const size_t written = changed.has_value() ? Write(*changed, max_size, out) : 0;
    if (written > 0) return written;
  }
  std::string joined(first.substr(0, random() % (size1 + 1)));
  joined += second.substr(random() % (size2 + 1));
  return Write(std::string_view(joined).substr(0, max_size), max_size, out);
}
