#include "client/utf8_stream.h"

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace sluice::client {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

bool IsObeyed(absl::string_view character) {
  return IsControl(character) && character != "\n" && character != "\t";
}

}  // namespace

std::string Utf8Stream::Append(absl::string_view piece) {
  held_.append(piece.data(), piece.size());
  return Take(/*at_end=*/false);
}

std::string Utf8Stream::Finish() { return Take(/*at_end=*/true); }

std::string Utf8Stream::Take(bool at_end) {
  std::string shown;
  absl::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Beginning beginning = MeasureUtf8(rest);
    if (beginning.open && !at_end) break;
    const absl::string_view character = rest.substr(0, beginning.bytes);
    const bool keep = beginning.complete && (controls_ || !IsObeyed(character));
    absl::StrAppend(&shown, keep ? character : kReplacement);
    rest.remove_prefix(beginning.bytes);
  }
  held_ = std::string(rest);
  return shown;
}

}  // namespace sluice::client
