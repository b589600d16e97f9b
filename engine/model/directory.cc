#include "engine/model/directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kMaxModelFiles = 16384;

// Returns whether the file has an effect on the answers of a model.
bool BelongsToModel(const std::string& name) {
  return name == "config.json" || name == "generation_config.json" || name == "added_tokens.json" ||
         name == "special_tokens_map.json" || name == "modules.json" ||
         name == "config_sentence_transformers.json" || name == "router_config.json" ||
         name == "artifact.metadata" || name == "adapter_config.json" ||
         name == "pair_frame.json" || name.starts_with("sentence_") ||
         name.starts_with("tokenizer") || name.find(".safetensors") != std::string::npos;
}

// Returns whether `name` is a folder name of sentence-transformers, such as 1_Pooling, or
// query_0_Transformer in a Router.
bool IsNumbered(const std::string& name) {
  if (name.starts_with("query_") || name.starts_with("document_")) return true;
  return !name.empty() && name[0] >= '0' && name[0] <= '9' && name.find('_') != std::string::npos;
}

// Returns whether a folder in `folder`, which is empty or ends with a slash, holds files of a
// model: a numbered one, or the encoder of labels.
bool HoldsPart(const std::string& folder, const std::string& name) {
  constexpr absl::string_view kLabels = "labels";
  if (folder.empty()) return IsNumbered(name) || name == kLabels;
  return folder == absl::StrCat(kLabels, "/") && IsNumbered(name);
}

// Returns a name that may come from a file, in a form fit for a message.
std::string Shown(absl::string_view name) { return absl::CHexEscape(name); }

absl::Status CheckPlainName(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Shown(name.substr(0, 64)), "\" is not a plain file name"));
}

// Returns the size of a regular file.
absl::StatusOr<size_t> SizeOf(const Descriptor& file, const std::string& name) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Shown(name)));
  }
  if (S_ISREG(info.st_mode)) return static_cast<size_t>(info.st_size);
  return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is not a regular file"));
}

// Reads up to `size` bytes of the file. Returns the number of bytes read.
absl::StatusOr<size_t> ReadAll(const Descriptor& file, const std::string& name, char* into,
                               size_t size) {
  size_t have = 0;
  while (have < size) {
    const ssize_t got = pread(file.get(), into + have, size - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Shown(name)));
    if (got == 0) break;
    have += got;
  }
  return have;
}

// A directory, and the path of another one below it.
struct RootedPath {
  std::string root, below;
};

// Returns the root of a directory with this absolute path; see Directory::Open.
RootedPath RootedPathOf(const std::string& path) {
  constexpr char kSnapshots[] = "/snapshots/";
  const size_t end = path.rfind(kSnapshots);
  const size_t begin = end == 0 || end == path.npos ? path.npos : path.rfind('/', end - 1);
  if (begin == path.npos || path.compare(begin + 1, 8, "models--") != 0) return {path, ""};
  return {path.substr(0, end), path.substr(end + 1)};
}

// Returns the path of an open file, or `name` if the system does not report it.
std::string PathOf(const Descriptor& file, const std::string& name) {
  char path[4096];
  const ssize_t size =
      readlink(absl::StrCat("/proc/self/fd/", file.get()).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, size) : name;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path,
                                                                   FileAccess access) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", Shown(path)));
  return Map(file, path, access);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Map(const Descriptor& file,
                                                                  const std::string& name,
                                                                  FileAccess access) {
  SLUICE_ASSIGN_OR_RETURN(const size_t size, SizeOf(file, name));
  const bool copies = access == FileAccess::kCopy;
  void* data = nullptr;
  if (size > 0) {  // an empty file cannot be mapped
    data = copies ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", Shown(name)));
    }
  }
  std::shared_ptr<const MappedFile> mapped(new MappedFile(data, size, PathOf(file, name)));
  if (!copies) return mapped;
  SLUICE_ASSIGN_OR_RETURN(const size_t have, ReadAll(file, name, static_cast<char*>(data), size));
  if (have < size)
    return absl::DataLossError(absl::StrCat(Shown(name), " was truncated while it was read"));
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), size_);
}

absl::StatusOr<Directory> Directory::Open(const std::string& path) {
  const Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open directory ", Shown(path)));
  }
  const RootedPath place = RootedPathOf(PathOf(directory, path));
  SLUICE_ASSIGN_OR_RETURN(auto root, RootDirectory::Open(place.root));
  return OpenBeneath(std::move(root), place.below);
}

bool Directory::IsAt(const std::string& path) const {
  struct stat own, other;
  return fstat(descriptor().get(), &own) == 0 && stat(path.c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

std::string Directory::Place() const { return PathOf(descriptor(), folder_.path); }

absl::StatusOr<Directory> Directory::OpenBeneath(std::shared_ptr<const RootDirectory> root,
                                                 const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(Folder folder, root->OpenFolder(path));
  return Directory(std::move(root), std::move(folder));
}

absl::StatusOr<Descriptor> Directory::OpenEntry(const std::string& name) const {
  SLUICE_RETURN_IF_ERROR(CheckPlainName(name));
  return root_->OpenBeneath(name, O_RDONLY, folder_);
}

absl::StatusOr<std::vector<std::string>> Directory::List(size_t most) const {
  return ListNames(descriptor(), folder_.path.empty() ? "." : folder_.path, most);
}

absl::StatusOr<Directory> Directory::OpenFolder(const std::string& name) const {
  SLUICE_RETURN_IF_ERROR(CheckPlainName(name));
  SLUICE_ASSIGN_OR_RETURN(Folder folder, root_->OpenFolder(name, folder_));
  return Directory(root_, std::move(folder));
}

// Returns true for a link, although Map may refuse it.
bool Directory::Has(const std::string& name) const {
  struct stat info;
  return CheckPlainName(name).ok() &&
         fstatat(descriptor().get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> Directory::Map(const std::string& name,
                                                                 FileAccess access) const {
  SLUICE_ASSIGN_OR_RETURN(const Descriptor file, OpenEntry(name));
  return MappedFile::Map(file, name, access);
}

absl::Status Directory::AppendFingerprint(const std::string& folder,
                                          std::string* fingerprint) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListNames(descriptor(), folder, kMaxModelFiles));
  for (const std::string& name : names) {
    if (HoldsPart(folder, name)) {
      const absl::StatusOr<Directory> inner = OpenFolder(name);
      if (inner.ok()) {
        SLUICE_RETURN_IF_ERROR(
            inner->AppendFingerprint(absl::StrCat(folder, name, "/"), fingerprint));
        continue;
      }
    }
    if (!BelongsToModel(name)) continue;
    const absl::StatusOr<Descriptor> file = OpenEntry(name);
    struct stat info {};
    if (!file.ok() || fstat(file->get(), &info) != 0) continue;  // loading reports the error
    absl::StrAppend(fingerprint, folder, name, ":", info.st_dev, ":", info.st_ino, ":",
                    info.st_size, ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, ";");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Directory::Fingerprint() const {
  std::string fingerprint;
  SLUICE_RETURN_IF_ERROR(AppendFingerprint("", &fingerprint));
  return fingerprint;
}

absl::StatusOr<std::string> Directory::Read(const std::string& name, size_t max_bytes) const {
  SLUICE_ASSIGN_OR_RETURN(const Descriptor file, OpenEntry(name));
  SLUICE_ASSIGN_OR_RETURN(const size_t size, SizeOf(file, name));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(name), " has ", size, " bytes; the limit is ", max_bytes));
  }
  std::string text(size, '\0');
  SLUICE_ASSIGN_OR_RETURN(const size_t have, ReadAll(file, name, text.data(), text.size()));
  text.resize(have);  // less if the file was truncated during the read
  return text;
}

}  // namespace sluice
