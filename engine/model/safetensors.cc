#include "engine/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr uint64_t kSizeBytes = 8;
constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxNameBytes = 512;
constexpr int kMaxHeaderDepth = 4;  // header, entry, shape; and one more for a clear error

absl::Status Invalid(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", absl::CEscape(name.substr(0, kMaxNameBytes)), ": ", what));
}

std::optional<uint64_t> ElementBytes(std::string_view dtype) {
  struct Known {
    std::string_view dtype;
    uint64_t bytes;
  };
  static constexpr Known kKnown[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                     {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
                                     {"BF16", 2},    {"U32", 4}, {"I32", 4}, {"F32", 4},
                                     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  for (const Known& known : kKnown) {
    if (known.dtype == dtype) return known.bytes;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<int64_t>> ReadShape(const std::string& name, const json& value) {
  if (!value.is_array()) return Invalid(name, "shape is not a list");
  if (value.size() > kMaxDimensions) {
    return Invalid(name, absl::StrCat("more than ", kMaxDimensions, " dimensions"));
  }
  std::vector<int64_t> shape;
  for (const json& size : value) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
      return Invalid(name, "shape has a value that is not an integer of at least 0");
    }
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

std::optional<uint64_t> ShapeBytes(const std::vector<int64_t>& shape, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

absl::StatusOr<SafetensorsEntry> ReadEntry(const std::string& name, const json& value,
                                           std::string_view data) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Invalid(name, absl::StrCat("a name must have 1 to ", kMaxNameBytes, " bytes"));
  }
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Invalid(name, "an entry must have exactly dtype, shape and data_offsets");
  }
  const json& dtype = value["dtype"];
  const std::optional<uint64_t> element_bytes =
      dtype.is_string() ? ElementBytes(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!element_bytes) return Invalid(name, "unknown dtype");
  SLUICE_ASSIGN_OR_RETURN(auto shape, ReadShape(name, value["shape"]));

  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return Invalid(name, "data_offsets is not a list of two integers of at least 0");
  }
  const uint64_t begin = offsets[0].get<uint64_t>();
  const uint64_t end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return Invalid(name, absl::StrCat("data_offsets [", begin, ", ", end, "] exceed the ",
                                      data.size(), " bytes of data; is the file complete?"));
  }
  const std::optional<uint64_t> bytes = ShapeBytes(shape, *element_bytes);
  if (!bytes || *bytes != end - begin) {
    return Invalid(
        name, absl::StrCat("data_offsets span ", end - begin, " bytes, its shape and dtype need ",
                           bytes ? absl::StrCat(*bytes) : "more than 2^64"));
  }
  return SafetensorsEntry{name, dtype.get<std::string>(), std::move(shape),
                          data.substr(begin, end - begin)};
}

absl::Status CheckFilled(const std::vector<SafetensorsEntry>& ascending, std::string_view data) {
  const char* next = data.data();
  for (const SafetensorsEntry& entry : ascending) {
    if (entry.data.data() < next) return Invalid(entry.name, "overlaps the tensor before it");
    if (entry.data.data() > next) return Invalid(entry.name, "unused bytes before it");
    next += entry.data.size();
  }
  const ptrdiff_t rest = data.data() + data.size() - next;
  if (rest == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(rest, " bytes after the last tensor"));
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::string_view file) {
  if (file.size() < kSizeBytes)
    return absl::InvalidArgumentError(absl::StrCat("no safetensors header size: the file has ",
                                                   file.size(), " bytes; expected at least ",
                                                   kSizeBytes));
  static_assert(std::endian::native == std::endian::little);
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), kSizeBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("safetensors header of ", header_bytes,
                                                   " bytes; the limit is ", kMaxHeaderBytes));
  }
  if (header_bytes > file.size() - kSizeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the file of ", file.size(),
                                                   " bytes ends within its header of ",
                                                   header_bytes, "; was it copied completely?"));
  }
  auto header = ParseJson(file.substr(kSizeBytes, header_bytes), kMaxHeaderDepth);
  if (!header.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("safetensors header: ", header.status().message()));
  }
  if (!header->is_object()) return absl::InvalidArgumentError("safetensors header: not an object");

  const std::string_view data = file.substr(kSizeBytes + header_bytes);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") continue;
    SLUICE_ASSIGN_OR_RETURN(auto entry, ReadEntry(name, value, data));
    entries.push_back(std::move(entry));
  }
  // An empty tensor is at the same place as the one that follows it.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  SLUICE_RETURN_IF_ERROR(CheckFilled(entries, data));
  return entries;
}

}  // namespace sluice
