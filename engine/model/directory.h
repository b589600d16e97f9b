// The files of one directory, read without ever leaving it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapped_files.h"
#include "engine/model/root_directory.h"

namespace sluice {

// How the bytes of a file come into memory: by a mapping of the file, or by a copy.
enum class FileAccess { kMap, kCopy };

// A regular file whose bytes are in memory while this object lives. As with every mapping,
// truncating a mapped file kills the process (SIGBUS); base/mapped_files.h then names the file.
// Model files must therefore be replaced by renaming.
class MappedFile {
 public:
  // Opens a path and follows symbolic links.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path, FileAccess access = FileAccess::kMap);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }
  // Sets the owner that the report of a fault in this file names.
  void SetOwner(const std::string& owner) const { name_.Set(owner + ", file " + place_); }

 private:
  friend class Directory;
  MappedFile(const void* data, size_t size, std::string place)
      : data_(data), size_(size), place_(std::move(place)), name_(data, size, place_) {}
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const Descriptor& file,
                                                               const std::string& name,
                                                               FileAccess access);

  const void* data_;
  size_t size_;
  std::string place_;  // the file's path if the system reports it
  MappingName name_;
};

// An open directory. It stays the same one if the names and links that led to it change. Errors
// name the file. A name must be a direct entry: ".", "..", a name with a slash, and an entry that
// is not a regular file are InvalidArgument. A symbolic link may lead to any place below the root
// directory; otherwise it is InvalidArgument too.
class Directory {
 public:
  // The root is the directory itself. For a snapshot in the cache of the Hugging Face Hub,
  // `models--*/snapshots/*`, it is the folder `models--*`: the files of a snapshot are links to
  // blobs in that folder.
  static absl::StatusOr<Directory> Open(const std::string& path);
  // Opens the directory `path` below `root`.
  static absl::StatusOr<Directory> OpenBeneath(std::shared_ptr<const RootDirectory> root,
                                               const std::string& path);

  bool Has(const std::string& name) const;
  // Returns whether a path leads to this directory, and a path of the directory for messages.
  bool IsAt(const std::string& path) const;
  std::string Place() const;
  // Returns the names of the entries in order; InvalidArgument if there are more than `most`.
  absl::StatusOr<std::vector<std::string>> List(size_t most) const;
  // Opens a direct entry that is a directory.
  absl::StatusOr<Directory> OpenFolder(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const std::string& name,
                                                        FileAccess access = FileAccess::kMap) const;
  // Returns a copy, which no truncation can affect. Returns InvalidArgument for a file above
  // `max_bytes`.
  absl::StatusOr<std::string> Read(const std::string& name, size_t max_bytes) const;

  // Returns a text that changes when a file of a model in the directory is replaced or written. It
  // has the places, sizes and times of config.json, the safetensors, the files of the tokenizer,
  // pair_frame.json, and the files of sentence-transformers, including its numbered folders, also
  // of the folder "labels".
  absl::StatusOr<std::string> Fingerprint() const;

 private:
  Directory(std::shared_ptr<const RootDirectory> root, Folder folder)
      : root_(std::move(root)), folder_(std::move(folder)) {}
  const Descriptor& descriptor() const { return root_->DescriptorOf(folder_); }
  absl::StatusOr<Descriptor> OpenEntry(const std::string& name) const;
  absl::Status AppendFingerprint(const std::string& folder, std::string* fingerprint) const;

  std::shared_ptr<const RootDirectory> root_;
  Folder folder_;
};

}  // namespace sluice
