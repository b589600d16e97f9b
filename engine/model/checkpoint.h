// Checkpoints: memory-mapped safetensors files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/directory.h"
#include "kernels/dtype.h"

namespace sluice {

struct Tensor {
  kernels::DType dtype;
  std::vector<int64_t> shape;
  const void* data;  // in the mapping; little-endian, row-major, not aligned

  int64_t elements() const;
};

// The tensors of a model directory, from model.safetensors or from the shards that
// model.safetensors.index.json lists (its list must be exactly the content of the shards). Open
// checks every offset, size, dtype and overlap. The table contains F32, F16, BF16, I8 and I32; the
// dtypes of other tensors are kept for the error of Find. Errors name the file.
class Checkpoint {
 public:
  static absl::StatusOr<Checkpoint> Open(const Directory& directory,
                                         FileAccess access = FileAccess::kMap);
  // Returns whether the directory has one of the files that Open reads.
  static bool IsIn(const Directory& directory);
  // Opens one file of any name.
  static absl::StatusOr<Checkpoint> OpenFile(const std::string& path);
  static absl::StatusOr<Checkpoint> OpenFile(const Directory& directory, const std::string& name,
                                             FileAccess access);

  Checkpoint() = default;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  // Makes the tensor `other` available as `name` too, if there is no tensor of that name.
  void Share(const std::string& name, const std::string& other);
  // Makes each tensor with `part` in its name available without this part too.
  void LeaveOut(const std::string& part);
  bool Has(const std::string& name) const;
  // Returns the names of all tensors, with any dtype, in order.
  std::vector<std::string> Names() const;
  // Returns whether the tensor exists, with any dtype.
  bool Lists(const std::string& name) const { return Has(name) || unsupported_.contains(name); }
  // Returns whether the tensor exists in int8.
  bool IsInt8(const std::string& name) const;
  // Returns a tensor of floats. Returns NotFound if it is missing, and InvalidArgument if its shape
  // or dtype differs; both name the tensor.
  absl::StatusOr<Tensor> Find(const std::string& name, const std::vector<int64_t>& shape) const;
  // A matrix in int8, [out, in], and the scales of its rows, [out, 1], which compressed-tensors
  // calls NAME_scale.
  struct Int8Tensor {
    Tensor values, scales;
  };
  absl::StatusOr<Int8Tensor> FindInt8(const std::string& name,
                                      const std::vector<int64_t>& shape) const;
  // Returns a tensor of I32, whose words have packed values.
  absl::StatusOr<Tensor> FindWords(const std::string& name,
                                   const std::vector<int64_t>& shape) const;
  const absl::flat_hash_map<std::string, Tensor>& tensors() const { return tensors_; }

  // Sets the owner that the report of a fault in one of the files names.
  void SetOwner(const std::string& owner) const {
    for (const auto& file : files_) file->SetOwner(owner);
  }
  // Returns the bytes of the files.
  int64_t bytes() const;
  // Returns whether the files were copied rather than mapped.
  bool copied() const { return access_ == FileAccess::kCopy; }

 private:
  // `wanted` names the expected dtypes for the error.
  absl::StatusOr<Tensor> FindAny(const std::string& name, const std::vector<int64_t>& shape,
                                 const char* wanted) const;
  // Adds the tensors of one file; `file_name` is for errors.
  absl::Status Add(std::shared_ptr<const MappedFile> file, const std::string& file_name);
  absl::Status AddShards(const Directory& directory);

  FileAccess access_ = FileAccess::kMap;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  absl::flat_hash_map<std::string, Tensor> tensors_;
  absl::flat_hash_map<std::string, std::string> unsupported_;  // name -> dtype
};

}  // namespace sluice
