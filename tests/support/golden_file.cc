#include "tests/support/golden_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace sluice::testing {
namespace {

template <typename T>
std::vector<T> Copy(const SafetensorsEntry& entry) {
  std::vector<T> values(entry.data.size() / sizeof(T));
  std::memcpy(values.data(), entry.data.data(), entry.data.size());
  return values;
}

}  // namespace

std::string GoldenPath(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/" + name;
}

std::vector<std::string> FamilyGoldens() {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(GoldenPath("families"))) {
    names.push_back(each.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenFile::GoldenFile(const std::string& path) {
  auto file = MappedFile::Open(path);
  SLUICE_CHECK(file.ok());
  file_ = *std::move(file);
  auto entries = ParseSafetensors(file_->bytes());
  SLUICE_CHECK(entries.ok());
  for (SafetensorsEntry& entry : *entries) {
    const std::string name = entry.name;
    entries_.emplace(name, std::move(entry));
  }
}

const SafetensorsEntry& GoldenFile::Entry(const std::string& name, const std::string& dtype) const {
  const auto it = entries_.find(name);
  SLUICE_CHECK(it != entries_.end() && it->second.dtype == dtype);
  return it->second;
}

std::vector<int64_t> GoldenFile::Shape(const std::string& name) const {
  return entries_.at(name).shape;
}

std::vector<float> GoldenFile::Floats(const std::string& name) const {
  return Copy<float>(Entry(name, "F32"));
}

std::vector<int32_t> GoldenFile::Ints(const std::string& name) const {
  return Copy<int32_t>(Entry(name, "I32"));
}

float GoldenFile::Scalar(const std::string& name) const {
  const std::vector<float> values = Floats(name);
  SLUICE_CHECK(values.size() == 1);
  return values[0];
}

}  // namespace sluice::testing
