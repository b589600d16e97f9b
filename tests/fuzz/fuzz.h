// Shared by the fuzz targets. Each defines LLVMFuzzerTestOneInput, which must survive any bytes
// under the sanitizers. It checks with SLUICE_CHECK what the code promises about input that it
// accepts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/check.h"

// The entry point of libFuzzer. It always returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sluice::fuzz {

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Checks that a refusal blames the caller, in a message that does no harm to a terminal or a log.
inline void CheckRefusal(const absl::Status& status) {
  SLUICE_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  SLUICE_CHECK(!status.message().empty() && status.message().size() < 8192);
  for (const char c : status.message()) {
    SLUICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
}

}  // namespace sluice::fuzz
