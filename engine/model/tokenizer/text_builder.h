// A text that is made piece by piece, within a limit on its bytes and on the memory of the work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_memory.h"

namespace sluice::tokenize {

inline constexpr size_t kMaxTextBytes = size_t{64} << 20;

struct OwnedText {
  std::string text;
  WorkMemory memory{};
};

// After an error it ignores everything, and Finish returns the error: OutOfRange for a text of more
// than `most` bytes, or the refusal of the account (base/work_memory.h).
class TextBuilder {
 public:
  // Reserves room for `expected` bytes, or for `most`.
  explicit TextBuilder(size_t expected = 0, size_t most = kMaxTextBytes) : most_(most) {
    if (expected > 0) Reserve(std::min(expected, most));
  }

  void Append(std::string_view bytes) {
    if (HasRoom(bytes.size())) made_.text += bytes;
  }
  void Append(char32_t point);
  // The name and types that a sink of ICU calls.
  void append(const char* bytes, int32_t count) {
    Append(std::string_view(bytes, static_cast<size_t>(count)));
  }
  void RemoveEnd(size_t bytes) { made_.text.resize(made_.text.size() - bytes); }

  std::string_view text() const { return made_.text; }
  absl::StatusOr<OwnedText> Finish() &&;

 private:
  bool HasRoom(size_t more) {
    const size_t size = made_.text.size() + more;
    return (size <= made_.text.capacity() && status_.ok()) || Grow(size);
  }
  bool Grow(size_t size);
  void Reserve(size_t bytes);

  size_t most_;
  OwnedText made_;
  absl::Status status_;
};

}  // namespace sluice::tokenize
