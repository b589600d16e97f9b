#include "base/write_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::Status WriteError(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

}  // namespace

absl::Status WriteFile(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  bool written = file != nullptr;
  if (written) written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0 && written) {
    written = false;
    error = errno;
  }
  return written ? absl::OkStatus() : WriteError(error, path);
}

absl::Status CheckWritable(const std::string& path) {
  std::error_code ignored;
  if (path.empty()) return WriteError(ENOENT, path);
  if (std::filesystem::is_directory(path, ignored)) return WriteError(EISDIR, path);
  if (access(path.c_str(), W_OK) == 0) return absl::OkStatus();
  if (errno != ENOENT) return WriteError(errno, path);
  const std::string folder = std::filesystem::path(path).parent_path();
  const bool writable =
      access(absl::StrCat(folder.empty() ? "." : folder, "/.").c_str(), W_OK | X_OK) == 0;
  return writable ? absl::OkStatus() : WriteError(errno, path);
}

}  // namespace sluice
