#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr char kTemporary[] = ".tmp.";

absl::Status SystemError(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::Status WriteAndSync(const std::string& path, std::string_view contents) {
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) return SystemError(path);
  while (!contents.empty()) {
    const ssize_t written = write(file.get(), contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError(path);
    contents.remove_prefix(written);
  }
  return fsync(file.get()) == 0 ? absl::OkStatus() : SystemError(path);
}

absl::Status SyncFolder(const std::filesystem::path& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) return SystemError(path.string());
  return absl::OkStatus();
}

// Removes temporary files of processes that ended before they renamed them.
void RemoveTemporaries(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(prefix)) left.push_back(entry.path());
  }
  for (const auto& each : left) std::filesystem::remove(each, ignored);
}

}  // namespace

absl::Status CheckReplaceable(const std::string& path) {
  struct stat facts {};
  // Without the file or without access to it, writing succeeds or returns the system's error.
  if (stat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a regular file; name a regular file or one that does not exist"));
}

absl::Status ReplaceFile(const std::string& path, std::string_view contents) {
  SLUICE_RETURN_IF_ERROR(CheckReplaceable(path));
  const std::filesystem::path target(path);
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  RemoveTemporaries(folder, target.filename().string() + kTemporary);
  std::random_device random;
  const std::string temporary = absl::StrCat(path, kTemporary, absl::Hex(random()));
  absl::Status status = WriteAndSync(temporary, contents);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = SystemError(path);
  if (status.ok()) return SyncFolder(folder);
  std::remove(temporary.c_str());
  return status;
}

}  // namespace sluice
