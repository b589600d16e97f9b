// Shared by the fuzz targets. Each defines TestInput, which must handle any bytes under the
// sanitizers. For accepted inputs it checks the guarantees of the code with SLUICE_CHECK. entry.cc
// calls it, and limits the processor time and the memory of each input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/check.h"

// The entry point for libFuzzer, in entry.cc. Returns 0, or -1 if libFuzzer must not add the input
// to its corpus.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sluice::fuzz {

// The entry of a target. Returns whether the code accepted the input.
bool TestInput(const uint8_t* data, size_t size);

struct InputCounts {
  int64_t inputs = 0;
  int64_t accepted = 0;
};

// Returns the counts of the inputs so far.
InputCounts Inputs();

// The most that an input may take. The unit of time is defined in entry.cc.
struct InputLimits {
  double first_units = 60e6;      // a tokenizer may make 2 KiB of each short text
  double units = 50e3;            // for each byte
  double first_bytes = 16 << 20;  // a line of a journal may take 4 MiB
  double bytes = 2048;            // for each byte
};

// Returns the largest shares of the limits that an input has taken so far.
std::string Costliest();

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Checks that a refusal is INVALID_ARGUMENT, with a short message of printable characters.
inline void CheckRefusal(const absl::Status& status) {
  SLUICE_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  SLUICE_CHECK(!status.message().empty() && status.message().size() < 8192);
  for (const char c : status.message()) {
    SLUICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
}

}  // namespace sluice::fuzz
