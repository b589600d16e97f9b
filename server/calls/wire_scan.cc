#include "server/calls/wire_scan.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using WireType = WireFormatLite::WireType;

// The memory of a text in addition to its characters: the string, a pointer in a list that may have
// doubled its capacity, and the overhead of two allocations.
constexpr int64_t kTextBytes = 32 + 2 * 8 + 2 * 16;
// The same for an unknown field, which contains a text.
constexpr int64_t kUnknownBytes = 2 * 16 + kTextBytes;
// Lists double their capacity when they grow.
constexpr int64_t kGrowth = 2;
constexpr int64_t kFewElements = 8;  // the capacity of a non-empty list

class WireScan {
 public:
  WireScan(google::protobuf::io::ZeroCopyInputStream* bytes, const WireLimits& limits)
      : limits_(limits), in_(bytes) {
    in_.SetTotalBytesLimit(INT_MAX);
  }

  absl::StatusOr<WireCost> Run(const Descriptor& type) {
    SLUICE_RETURN_IF_ERROR(Add(1, kMessageBytes));
    SLUICE_RETURN_IF_ERROR(ScanMessage(type));
    if (!in_.ConsumedEntireMessage()) return Malformed();
    return cost_;
  }

 private:
  static absl::Status Malformed(
      absl::string_view problem = "the request is not a well-formed message") {
    return ReasonError(Reason::kMalformed, problem);
  }

  absl::Status Add(int64_t parts, int64_t bytes) {
    cost_.parts += parts;
    cost_.bytes += bytes;
    if (cost_.parts <= limits_.parts && cost_.bytes <= limits_.bytes) return absl::OkStatus();
    const bool many = cost_.parts > limits_.parts;
    return ReasonError(
        Reason::kRequest,
        many ? absl::StrCat(
                   "the request has more than ", limits_.parts,
                   " parts (inputs, outputs, parameters, texts and unknown fields); split it")
             : absl::StrCat("the request takes more than ", limits_.bytes,
                            " bytes in memory; split it"));
  }

  // Scans up to the end of the current limit.
  absl::Status ScanMessage(const Descriptor& type) {
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* const field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      SLUICE_RETURN_IF_ERROR(ScanField(field, WireFormatLite::GetTagWireType(tag)));
    }
    return absl::OkStatus();
  }

  absl::Status ScanField(const FieldDescriptor* field, WireType wire) {
    if (wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return ScanDelimited(field);
    uint64_t varint = 0;
    const bool skipped = (wire == WireFormatLite::WIRETYPE_VARINT && in_.ReadVarint64(&varint)) ||
                         (wire == WireFormatLite::WIRETYPE_FIXED64 && in_.Skip(sizeof(uint64_t))) ||
                         (wire == WireFormatLite::WIRETYPE_FIXED32 && in_.Skip(sizeof(uint32_t)));
    if (wire == WireFormatLite::WIRETYPE_START_GROUP)
      return Malformed("the request has a group, which the protocol does not use");
    if (!skipped) return Malformed();
    if (field == nullptr || WireFormatLite::WireTypeForFieldType(TypeOf(*field)) != wire) {
      return Add(1, kUnknownBytes);
    }
    return field->is_repeated() ? AddElements(*field, 1) : absl::OkStatus();
  }

  static WireFormatLite::FieldType TypeOf(const FieldDescriptor& field) {
    return static_cast<WireFormatLite::FieldType>(field.type());
  }

  absl::Status ScanDelimited(const FieldDescriptor* field) {
    int size = 0;
    if (!in_.ReadVarintSizeAsInt(&size)) return Malformed();
    if (field != nullptr && field->message_type() != nullptr) {
      SLUICE_RETURN_IF_ERROR(Add(1, kMessageBytes));
      const int rest = in_.BytesUntilLimit();  // -1 if there is no limit
      if (rest >= 0 && size > rest) return Malformed();
      const auto outer = in_.PushLimit(size);
      SLUICE_RETURN_IF_ERROR(ScanMessage(*field->message_type()));
      if (!in_.ConsumedEntireMessage() || in_.BytesUntilLimit() != 0) return Malformed();
      in_.PopLimit(outer);
      return absl::OkStatus();
    }
    if (field != nullptr && field->is_packable()) return ScanPacked(*field, size);
    const bool text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    SLUICE_RETURN_IF_ERROR(Add(1, (text ? kTextBytes : kUnknownBytes) + size));
    return in_.Skip(size) ? absl::OkStatus() : Malformed();
  }

  absl::Status ScanPacked(const FieldDescriptor& field, int size) {
    const WireType wire = WireFormatLite::WireTypeForFieldType(TypeOf(field));
    if (wire != WireFormatLite::WIRETYPE_VARINT) {
      const int64_t each = ElementBytes(field);
      return in_.Skip(size) && size % each == 0 ? AddElements(field, size / each) : Malformed();
    }
    int64_t elements = 0;
    while (size > 0) {
      const void* chunk = nullptr;
      int available = 0;
      if (!in_.GetDirectBufferPointer(&chunk, &available)) return Malformed();
      const int count = std::min(available, size);
      const auto* const bytes = static_cast<const uint8_t*>(chunk);
      elements += std::count_if(bytes, bytes + count, [](uint8_t byte) { return byte < 0x80; });
      if (!in_.Skip(count)) return Malformed();
      size -= count;
    }
    return AddElements(field, elements);
  }

  static int64_t ElementBytes(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return 1;
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_ENUM:
        return 4;
      default:
        return 8;
    }
  }

  // If a list comes in several pieces, its first elements are counted for each piece. The bound is
  // then higher than needed, but still valid.
  absl::Status AddElements(const FieldDescriptor& field, int64_t count) {
    return Add(0, kGrowth * ElementBytes(field) * (count + kFewElements));
  }

  const WireLimits limits_;
  google::protobuf::io::CodedInputStream in_;
  WireCost cost_;
};

}  // namespace

absl::StatusOr<WireCost> ScanWire(google::protobuf::io::ZeroCopyInputStream* bytes,
                                  const Descriptor& type, const WireLimits& limits) {
  return WireScan(bytes, limits).Run(type);
}

}  // namespace sluice
