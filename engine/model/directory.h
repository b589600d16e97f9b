// Files of one directory, read without ever leaving it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/root_directory.h"

namespace sluice {

// A regular file mapped read-only for this object's life. Whoever truncates the file meanwhile
// kills the process (SIGBUS), as with every mapping: model files are replaced by renaming.
class MappedFile {
 public:
  // Follows symbolic links.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  friend class Directory;
  MappedFile(const void* data, size_t size) : data_(data), size_(size) {}
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const Descriptor& file,
                                                               const std::string& name);

  const void* data_;
  size_t size_;
};

// Errors name the file. Names are those of direct entries: one with a slash, "." or ".." is
// InvalidArgument, and so is what is no regular file, a symbolic link for one. Below a root, however,
// links may lead to any place that is below the root too.
class Directory {
 public:
  static absl::StatusOr<Directory> Open(const std::string& path);
  // `path` as RootDirectory has it.
  static absl::StatusOr<Directory> OpenBeneath(std::shared_ptr<const RootDirectory> root,
                                               const std::string& path);

  bool Has(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const std::string& name) const;
  // A copy, which nobody can cut; InvalidArgument for a file above `max_bytes`.
  absl::StatusOr<std::string> Read(const std::string& name, size_t max_bytes) const;

  // Changes when a file of a model in it is replaced or written: of the places, sizes and times of
  // config.json, of the safetensors and of the tokenizer's files.
  absl::StatusOr<std::string> Fingerprint() const;

 private:
  explicit Directory(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  absl::StatusOr<Descriptor> OpenEntry(const std::string& name, int flags) const;

  Descriptor descriptor_;
  std::shared_ptr<const RootDirectory> root_;  // nullptr: entries are no links
  std::string path_;                           // below the root
};

}  // namespace sluice
