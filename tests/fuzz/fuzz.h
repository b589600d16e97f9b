// Shared by the fuzz targets. Each defines LLVMFuzzerTestOneInput, which must handle any bytes
// under the sanitizers. For accepted inputs it checks the guarantees of the code with
// SLUICE_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/check.h"

// The entry point for libFuzzer. Always returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sluice::fuzz {

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
