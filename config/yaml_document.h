// A bounded reader of YAML for configuration files. It accepts UTF-8 without control characters. It
// refuses anchors, aliases, tags, duplicate keys and second documents, because they can change the
// meaning of text elsewhere in the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/enum_names.h"

namespace sluice {

inline constexpr size_t kMaxYamlBytes = 256 << 10;
inline constexpr size_t kMaxYamlDepth = 16;
inline constexpr size_t kMaxYamlEntries = 1024;  // of one list or map

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 1;        // of its key, or of the node itself if it has no key
  std::string key;     // of a map entry
  std::string scalar;  // the text without quotes
  std::vector<YamlNode> children;
};
constexpr auto EnumNamesOf(YamlNode::Kind) {
  using enum YamlNode::Kind;
  return EnumNameTable<YamlNode::Kind>(
      {{kNull, "nothing"}, {kScalar, "a value"}, {kList, "a list"}, {kMap, "a map"}});
}

// Returns the document's root, a null node for an empty text, or InvalidArgument "FILE:LINE: ...".
absl::StatusOr<YamlNode> ParseYaml(absl::string_view text, const std::string& file);

}  // namespace sluice
