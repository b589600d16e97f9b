#include "base/write_file.h"

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status WriteFile(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  bool written = file != nullptr;
  if (written) written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0 && written) {
    written = false;
    error = errno;
  }
  return written ? absl::OkStatus()
                 : absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

}  // namespace sluice
