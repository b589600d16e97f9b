#include "verify/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::verify {
namespace {

constexpr int64_t kMaxNumbers = int64_t{1} << 28;
constexpr size_t kMaxNpyHeader = 65536;
constexpr size_t kEndBytes = 22;
constexpr size_t kCentralBytes = 46;
constexpr size_t kLocalBytes = 30;
constexpr std::string_view kEndMark("PK\x05\x06", 4);
constexpr std::string_view kCentralMark("PK\x01\x02", 4);
constexpr std::string_view kLocalMark("PK\x03\x04", 4);
constexpr uint32_t kStored = 0;
constexpr uint32_t kDeflated = 8;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Reads a little-endian number. Bytes beyond the end are zero; callers check the size before.
uint32_t Number(std::string_view bytes, size_t at, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size && at + i < bytes.size(); ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return number;
}

struct Entry {
  std::string name;
  uint32_t method = 0;
  size_t packed = 0, unpacked = 0;
  size_t local = 0;  // the offset of the entry's own header
};

// Returns the entry at `*at` of the central directory and moves `*at` past it.
std::optional<Entry> ReadEntry(std::string_view file, size_t* at) {
  const std::string_view rest = file.substr(std::min(*at, file.size()));
  if (rest.size() < kCentralBytes || !rest.starts_with(kCentralMark)) return std::nullopt;
  const size_t name = Number(rest, 28, 2);
  const size_t size = kCentralBytes + name + Number(rest, 30, 2) + Number(rest, 32, 2);
  if (size > rest.size()) return std::nullopt;
  *at += size;
  return Entry{.name = std::string(rest.substr(kCentralBytes, name)),
               .method = Number(rest, 10, 2),
               .packed = Number(rest, 20, 4),
               .unpacked = Number(rest, 24, 4),
               .local = Number(rest, 42, 4)};
}

absl::StatusOr<std::vector<Entry>> ReadDirectory(std::string_view file) {
  const size_t end = file.rfind(kEndMark);
  if (end == std::string_view::npos || file.size() - end < kEndBytes) {
    return Wrong("is not a .npz file");
  }
  const uint32_t count = Number(file, end + 10, 2);
  size_t at = Number(file, end + 16, 4);
  std::vector<Entry> entries;
  for (uint32_t i = 0; i < count; ++i) {
    std::optional<Entry> entry = ReadEntry(file, &at);
    if (!entry) return Wrong(absl::StrCat("entry ", i, " of the archive is broken"));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::string> Inflate(std::string_view packed, size_t unpacked) {
  std::string bytes(unpacked, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return absl::InternalError("zlib does not initialise");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (result == Z_STREAM_END && stream.avail_out == 0) return bytes;
  return Wrong("does not inflate to the size in the archive");
}

absl::StatusOr<std::string> Unpack(std::string_view file, const Entry& entry) {
  if (entry.local > file.size() || file.size() - entry.local < kLocalBytes ||
      !file.substr(entry.local).starts_with(kLocalMark)) {
    return Wrong("has no header");
  }
  const size_t begin = entry.local + kLocalBytes + Number(file, entry.local + 26, 2) +
                       Number(file, entry.local + 28, 2);
  if (begin > file.size() || entry.packed > file.size() - begin) return Wrong("is cut off");
  // Deflating reduces data by a factor of 1032 at most.
  if (entry.unpacked / 1040 > entry.packed) return Wrong("cannot have the size in the archive");
  const std::string_view packed = file.substr(begin, entry.packed);
  if (entry.method == kDeflated) return Inflate(packed, entry.unpacked);
  if (entry.method == kStored && entry.packed == entry.unpacked) return std::string(packed);
  return Wrong("is neither stored nor deflated");
}

// Returns the text after `key` in the literal at the beginning of a .npy file.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + key.size());
  while (!value.empty() && (value.front() == ' ' || value.front() == ':')) value.remove_prefix(1);
  return value;
}

std::optional<std::vector<int64_t>> ReadShape(std::string_view header) {
  std::string_view list = ValueOf(header, "'shape'");
  if (!list.starts_with('(') || list.find(')') == std::string_view::npos) return std::nullopt;
  list = list.substr(1, list.find(')') - 1);
  std::vector<int64_t> shape;
  int64_t numbers = 1;
  for (absl::string_view part :
       absl::StrSplit(absl::string_view(list.data(), list.size()), ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0 || shape.size() == 8) return std::nullopt;
    if (extent > 0 && numbers > kMaxNumbers / extent) return std::nullopt;
    numbers *= extent;
    shape.push_back(extent);
  }
  return shape;
}

template <typename T>
bool Copy(std::string_view data, std::vector<double>* values) {
  if (data.size() != values->size() * sizeof(T)) return false;
  for (size_t i = 0; i < values->size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    (*values)[i] = static_cast<double>(value);
  }
  return true;
}

bool CopyAs(std::string_view type, std::string_view data, std::vector<double>* values) {
  if (type.starts_with("'<f4'")) return Copy<float>(data, values);
  if (type.starts_with("'<f8'")) return Copy<double>(data, values);
  if (type.starts_with("'<i4'")) return Copy<int32_t>(data, values);
  return type.starts_with("'<i8'") && Copy<int64_t>(data, values);
}

absl::StatusOr<Array> ParseNpy(std::string_view file) {
  if (file.size() < 12 || !file.starts_with("\x93NUMPY")) return Wrong("is not a .npy file");
  const bool wide = file[6] != 1;  // whether this version stores the header's size in four bytes
  const size_t begin = wide ? 12 : 10;
  const size_t size = Number(file, 8, wide ? 4 : 2);
  if (size > kMaxNpyHeader || size > file.size() - begin) return Wrong("has a broken header");
  const std::string_view header = file.substr(begin, size);
  if (!ValueOf(header, "'fortran_order'").starts_with("False")) return Wrong("is not in C order");
  std::optional<std::vector<int64_t>> shape = ReadShape(header);
  if (!shape) return Wrong("has a shape that is not supported");
  const std::string_view data = file.substr(begin + size);
  int64_t numbers = 1;
  for (const int64_t extent : *shape) numbers *= extent;
  if (numbers > std::ssize(data)) return Wrong("is cut off");
  Array array{*std::move(shape), std::vector<double>(static_cast<size_t>(numbers))};
  if (CopyAs(ValueOf(header, "'descr'"), data, &array.values)) return array;
  return Wrong("is not of float32, float64, int32 or int64, or its size does not match its shape");
}

absl::StatusOr<Array> ReadArray(std::string_view file, const Entry& entry) {
  SLUICE_ASSIGN_OR_RETURN(const auto bytes, Unpack(file, entry));
  return ParseNpy(bytes);
}

}  // namespace

absl::StatusOr<std::map<std::string, Array>> ReadNpz(std::string_view file) {
  SLUICE_ASSIGN_OR_RETURN(const auto entries, ReadDirectory(file));
  std::map<std::string, Array> arrays;
  for (const Entry& entry : entries) {
    auto array = ReadArray(file, entry);
    if (!array.ok()) {
      return Wrong(
          absl::StrCat(absl::CHexEscape(entry.name.substr(0, 200)), " ", array.status().message()));
    }
    const bool suffix = entry.name.ends_with(".npy");
    arrays[entry.name.substr(0, entry.name.size() - (suffix ? 4 : 0))] = *std::move(array);
  }
  return arrays;
}

}  // namespace sluice::verify
