#include "server/protocol/request/peek.h"

#include <algorithm>
#include <climits>
#include <cstdint>

#include "base/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/inference.pb.h"

namespace sluice {
namespace {

using google::protobuf::internal::WireFormatLite;
using Message = inference::ModelInferRequest;

// A message with more fields, or with longer parameters, is parsed instead.
constexpr int kMostFields = 64;
constexpr size_t kMostParameterBytes = 256;

// The search may find such a parameter where there is none, which is harmless.
bool MayDecideAdmission(std::string_view parameter) {
  return parameter.size() > kMostParameterBytes ||
         parameter.find("priority") != std::string_view::npos ||
         parameter.find("timeout") != std::string_view::npos;
}

}  // namespace

std::optional<RequestPeek> PeekAtRequest(std::string_view message) {
  if (message.size() > INT_MAX) return std::nullopt;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                                            static_cast<int>(message.size()));
  RequestPeek peek;
  for (int field = 0; field < kMostFields; ++field) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage() ? std::optional(peek) : std::nullopt;
    int size = 0;  // every field has a size
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !in.ReadVarintSizeAsInt(&size)) {
      return std::nullopt;
    }
    const int begin = in.CurrentPosition();
    if (!in.Skip(size)) return std::nullopt;
    const std::string_view value = message.substr(begin, size);
    switch (WireFormatLite::GetTagFieldNumber(tag)) {
      case Message::kModelNameFieldNumber:
        peek.model_name = value;
        break;
      case Message::kModelVersionFieldNumber:
        peek.model_version = value;
        break;
      case Message::kParametersFieldNumber:
        if (MayDecideAdmission(value)) return std::nullopt;
        break;
      default:
        break;
    }
  }
  return std::nullopt;
}

std::string PeekAtId(std::string_view first_bytes) {
  const size_t most = std::min<size_t>(first_bytes.size(), INT_MAX);
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(first_bytes.data()),
                                            static_cast<int>(most));
  for (int field = 0; field < kMostFields; ++field) {
    const uint32_t tag = in.ReadTag();
    int size = 0;
    if (tag == 0 ||
        WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !in.ReadVarintSizeAsInt(&size)) {
      return "";
    }
    const int begin = in.CurrentPosition();
    if (!in.Skip(size)) return "";
    if (WireFormatLite::GetTagFieldNumber(tag) != Message::kIdFieldNumber) continue;
    const std::string_view id = first_bytes.substr(begin, size);
    return id.size() <= kMostPeekedIdBytes && IsUtf8({id.data(), id.size()}) ? std::string(id) : "";
  }
  return "";
}

}  // namespace sluice
