#include "config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/option_value.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace sluice {
namespace {

absl::Status ErrorAt(const std::string& file, int line, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(file, ":", line, ": ", problem));
}

// Refuses text that yaml-cpp would misread: it takes a NUL for the end of the file and ignores the
// rest, and it guesses encodings.
absl::Status CheckText(absl::string_view text, const std::string& file) {
  const auto control = std::find_if(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_iscntrl(c) && c != '\n' && c != '\r' && c != '\t';
  });
  const size_t encoded = Utf8Length(text);
  const auto end = text.begin() + static_cast<ptrdiff_t>(encoded);
  if (control == text.end() && end == text.end()) return absl::OkStatus();
  const auto line = 1 + std::count(text.begin(), std::min(control, end), '\n');
  return ErrorAt(file, static_cast<int>(line),
                 control < end ? absl::StrFormat("a control character, 0x%02x", *control)
                               : "text that is not UTF-8");
}

// Returns the number, from 1, of the first line up to `last` that is indented by a tab, or 0. Tabs
// are the most common syntax error, and the parser's own messages do not name them.
int LineIndentedByTab(absl::string_view text, int last) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (++number > last) break;
    const size_t indented = std::min(line.find_first_not_of(" \t"), line.size());
    if (line.substr(0, indented).find('\t') != line.npos && indented < line.size()) return number;
  }
  return 0;
}

// Builds the tree from the parser's events. Further events after the first error are ignored,
// because an exception must not pass through the parser and the text is bounded.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  const absl::Status& status() const { return status_; }
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(mark, "", anchor, YamlNode::Kind::kNull, "");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark, "aliases are not allowed");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (ExpectsKey()) {
      TakeKey(mark, value);
    } else {
      Add(mark, tag, anchor, YamlNode::Kind::kScalar, value);
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kList);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }

  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  void Fail(const YAML::Mark& mark, absl::string_view problem) {
    if (status_.ok()) status_ = ErrorAt(file_, mark.line + 1, problem);
  }

  bool ExpectsKey() const {
    return !open_.empty() && open_.back()->kind == YamlNode::Kind::kMap && !key_.has_value();
  }

  void TakeKey(const YAML::Mark& mark, const std::string& key) {
    if (!status_.ok()) return;
    for (const YamlNode& other : open_.back()->children) {
      if (other.key != key) continue;
      return Fail(mark, absl::StrCat("the key ", Quote(key),
                                     " is given twice; the first is in line ", other.line));
    }
    key_ = key;
    key_line_ = mark.line + 1;
  }

  // Returns nullptr after an error.
  YamlNode* Add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                YamlNode::Kind kind, const std::string& scalar) {
    if (ExpectsKey()) Fail(mark, "a key must be plain text");
    if (anchor != YAML::NullAnchor) Fail(mark, "anchors are not allowed");
    // "?" marks a plain and "!" a quoted scalar.
    if (!tag.empty() && tag != "?" && tag != "!") Fail(mark, "tags are not allowed");
    if (!open_.empty() && open_.back()->children.size() >= kMaxYamlEntries) {
      Fail(mark, absl::StrCat("more than ", kMaxYamlEntries, " entries in one list or map"));
    }
    if (!status_.ok()) return nullptr;
    YamlNode* node = open_.empty() ? &root_ : &open_.back()->children.emplace_back();
    *node = {kind, key_.has_value() ? key_line_ : mark.line + 1, key_.value_or(""), scalar, {}};
    key_.reset();
    return node;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (open_.size() >= kMaxYamlDepth) {
      Fail(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth));
    }
    if (YamlNode* node = Add(mark, tag, anchor, kind, "")) open_.push_back(node);
  }

  void Close() {
    if (status_.ok()) open_.pop_back();
  }

  const std::string& file_;
  absl::Status status_;
  YamlNode root_;
  // The path from the root to the node that is being filled. All siblings before these nodes are
  // complete, so the vectors that hold these nodes do not grow while the path points into them.
  std::vector<YamlNode*> open_;
  std::optional<std::string> key_;  // the key whose value comes next
  int key_line_ = 0;
};

}  // namespace

absl::StatusOr<YamlNode> ParseYaml(absl::string_view text, const std::string& file) {
  if (text.size() > kMaxYamlBytes) {
    return ErrorAt(file, 1, absl::StrCat("larger than ", kMaxYamlBytes, " bytes"));
  }
  SLUICE_RETURN_IF_ERROR(CheckText(text, file));
  TreeBuilder builder(file);
  try {
    // yaml-cpp accepts an open quote at the end of the text when a line break precedes it.
    std::istringstream stream{std::string(absl::StripTrailingAsciiWhitespace(text))};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      TreeBuilder rest(file);
      if (parser.HandleNextDocument(rest)) {
        return absl::InvalidArgumentError(absl::StrCat(file, ": more than one document"));
      }
    }
  } catch (const YAML::Exception& error) {
    if (!builder.status().ok()) return builder.status();
    if (const int line = LineIndentedByTab(text, error.mark.line + 1); line > 0) {
      return ErrorAt(file, line, "indented with a tab; YAML must be indented with spaces");
    }
    // The message may quote text that is cut inside a UTF-8 character.
    return ErrorAt(file, error.mark.line + 1, absl::CHexEscape(error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
  if (!builder.status().ok()) return builder.status();
  return builder.TakeRoot();
}

}  // namespace sluice
