// Reads tensors from the committed golden files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/model/directory.h"
#include "engine/model/safetensors.h"

namespace sluice::testing {

// Returns the path tests/goldens/`name`.
std::string GoldenPath(const std::string& name);

// Returns the names of the folders in tests/goldens/families, in alphabetical order.
std::vector<std::string> FamilyGoldens();

// A safetensors file with F32 and I32 tensors. A missing tensor or another dtype fails a CHECK.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  bool Has(const std::string& name) const { return entries_.contains(name); }
  std::vector<int64_t> Shape(const std::string& name) const;
  std::vector<float> Floats(const std::string& name) const;
  std::vector<int32_t> Ints(const std::string& name) const;
  // Returns the value of an F32 tensor of shape [1].
  float Scalar(const std::string& name) const;

 private:
  const SafetensorsEntry& Entry(const std::string& name, const std::string& dtype) const;

  std::shared_ptr<const MappedFile> file_;
  absl::flat_hash_map<std::string, SafetensorsEntry> entries_;
};

}  // namespace sluice::testing
