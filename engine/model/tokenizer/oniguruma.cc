#include "engine/model/tokenizer/oniguruma.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::tokenize {
namespace {

// The characters of \w in a set, without the joiners that ICU adds.
constexpr char kWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// The characters of \w outside of sets. Oniguruma has a table for Latin-1 there, with the numbers
// that are superscripts or fractions.
constexpr char kLoneWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u00B2\u00B3\u00B9\u00BC-\u00BE)";

constexpr char kHexadecimal[] = "0-9A-Fa-f";

struct NamedClass {
  std::string_view name;
  std::string_view icu;  // the members of a set
};
constexpr NamedClass kClasses[] = {
    {"punct", R"(\p{P}\p{S})"},
    {"xdigit", kHexadecimal},
    {"word", kWord},
    {"ascii", R"(\x00-\x7F)"},
};

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

class Translation {
 public:
  explicit Translation(std::string_view text) : text_(text) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < text_.size()) SLUICE_RETURN_IF_ERROR(Step());
    out_.append(groups_.front().options, ')');
    return std::move(out_);
  }

 private:
  struct OpenGroup {
    size_t begin = 0;  // in out_
    bool insensitive = false;
    size_t options = 0;  // the groups of options that end with it
  };

  absl::Status Unsupported(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "is not supported: ", absl::Utf8SafeCHexEscape(absl::string_view(what.data(), what.size())),
        " at byte ", at_, " has no equivalent in ICU"));
  }

  bool Follows(std::string_view expected) const { return text_.substr(at_).starts_with(expected); }

  // Copies the next `count` bytes.
  void Copy(size_t count) {
    out_ += text_.substr(at_, count);
    at_ += std::min(count, text_.size() - at_);
  }

  // Marks the beginning of something that a repetition may follow.
  void BeginAtom() { atom_ = out_.size(); }

  absl::Status Step() {
    switch (text_[at_]) {
      case '\\':
        BeginAtom();
        return Escape(/*in_set=*/false);
      case '[':
        BeginAtom();
        return Set();
      case '(':
        return Group();
      case ')':
        atom_ = groups_.back().begin;
        out_.append(groups_.back().options, ')');
        if (groups_.size() > 1) groups_.pop_back();
        Copy(1);
        return absl::OkStatus();
      case '{':
        return Brace();
      case '}':
        BeginAtom();
        out_ += "\\}";
        ++at_;
        return absl::OkStatus();
      case '*':
      case '+':
      case '?':
      case '|':
        Copy(1);
        return absl::OkStatus();
      default:
        BeginAtom();
        Copy(1);
        // A character of several bytes is one atom.
        while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80) {
          Copy(1);
        }
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    if (Follows("(?#")) {
      const size_t close = text_.find(')', at_);
      Copy(close == text_.npos ? text_.size() : close + 1 - at_);
      return absl::OkStatus();
    }
    OpenGroup group{.begin = out_.size(), .insensitive = groups_.back().insensitive};
    const size_t end = Follows("(?") ? text_.find_first_not_of("imx-", at_ + 2) : text_.npos;
    if (end != text_.npos && end > at_ + 2 && (text_[end] == ')' || text_[end] == ':')) {
      std::string flags(text_.substr(at_, end - at_));
      std::ranges::replace(flags, 'm', 's');
      out_ += flags + ":";
      const size_t i = flags.find('i');
      if (i != flags.npos) group.insensitive = flags.find('-') > i;
      if (text_[end] == ')') {
        groups_.back().insensitive = group.insensitive;
        ++groups_.back().options;
      } else {
        groups_.push_back(group);
      }
      at_ = end + 1;
      return absl::OkStatus();
    }
    for (const std::string_view other : {"(?~", "(?(", "(?s", "(?a", "(?u", "(?d", "(?y", "(?w"}) {
      if (Follows(other)) return Unsupported(other);
    }
    groups_.push_back(group);
    Copy(!Follows("(?") ? 1 : Follows("(?<=") || Follows("(?<!") ? 4 : 3);
    return absl::OkStatus();
  }

  // Translates an interval such as {2,5}, and the sign after it, or a literal brace.
  absl::Status Brace() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < text_.size() && IsDigit(text_[end])) ++end;
      return text_.substr(begin, end - begin);
    };
    const std::string_view low = digits();
    const bool comma = end < text_.size() && text_[end] == ',';
    if (comma) ++end;
    const std::string_view high = comma ? digits() : low;
    if (end == text_.size() || text_[end] != '}' || (low.empty() && high.empty())) {
      BeginAtom();
      out_ += "\\{";
      ++at_;
      return absl::OkStatus();
    }
    out_ += '{';
    out_ += low.empty() ? "0" : low;
    if (comma) {
      out_ += ',';
      out_ += high;
    }
    out_ += '}';
    at_ = end + 1;
    const char sign = at_ < text_.size() ? text_[at_] : '\0';
    if (sign == '+' || (sign == '?' && !comma)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      Copy(1);
    }
    return absl::OkStatus();
  }

  absl::Status Escape(bool in_set) {
    const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    switch (letter) {
      case 'h':
        AddMembers(kHexadecimal, /*negated=*/false, in_set);
        at_ += 2;
        return absl::OkStatus();
      case 'H':
        AddMembers(kHexadecimal, /*negated=*/true, in_set);
        at_ += 2;
        return absl::OkStatus();
      case 'v':
        out_ += "\\x0B";
        at_ += 2;
        return absl::OkStatus();
      case 'p':
      case 'P':
        return Property(in_set);
      case 'x':
        return Hexadecimal();
      case 'b':
      case 'B':
        if (in_set) return Unsupported(text_.substr(at_, 2));
        // ICU ignores marks and format characters at the boundary.
        out_ += absl::StrCat("(?:(?<=[", kLoneWord, "])(?", letter == 'b' ? "!" : "=", "[",
                             kLoneWord, "])|(?<![", kLoneWord, "])(?", letter == 'b' ? "=" : "!",
                             "[", kLoneWord, "]))");
        at_ += 2;
        return absl::OkStatus();
      case 'Z':
        if (in_set) return Unsupported(text_.substr(at_, 2));
        out_ += "(?=\\n?\\z)";  // ICU's also matches before other line ends
        at_ += 2;
        return absl::OkStatus();
      case 'w':
        AddMembers(in_set ? kWord : kLoneWord, /*negated=*/false, in_set);
        at_ += 2;
        return absl::OkStatus();
      case 'W':
        AddMembers(in_set ? kWord : kLoneWord, /*negated=*/true, in_set);
        at_ += 2;
        return absl::OkStatus();
      case 'N':
      case 'O':
      case 'K':
      case 'g':
      case 'y':
      case 'Y':
      case 'Q':
      case 'E':
      case 'V':
        return Unsupported(text_.substr(at_, 2));
      default:
        Copy(2);
        while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80) {
          Copy(1);
        }
        return absl::OkStatus();
    }
  }

  // Copies \xHH or \x{H...}.
  absl::Status Hexadecimal() {
    const bool braces = Follows("\\x{");
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t most = braces ? text_.size() : begin + 2;
    size_t end = begin;
    while (end < std::min(most, text_.size()) && absl::ascii_isxdigit(text_[end])) ++end;
    const bool closed = !braces || (end < text_.size() && text_[end] == '}');
    // From \x80 on it is a byte of a character.
    const bool byte = !braces && end == most && text_[begin] >= '8';
    if (end == begin || !closed || byte) return Unsupported(text_.substr(at_, end - at_));
    Copy(end + (braces ? 1 : 0) - at_);
    return absl::OkStatus();
  }

  // Translates \p{Name} and its negations.
  absl::Status Property(bool in_set) {
    const size_t end = text_.find('}', at_);
    if (at_ + 2 >= text_.size() || text_[at_ + 2] != '{' || end == text_.npos) {
      return Unsupported(text_.substr(at_, 3));
    }
    std::string_view name = text_.substr(at_ + 3, end - at_ - 3);
    bool negated = text_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    at_ = end + 1;
    // Outside of sets it does not match other cases of its characters.
    const bool exact = !in_set && groups_.back().insensitive;
    if (exact) out_ += "(?-i:";
    const std::string_view members = MembersOf(name, in_set);
    if (members.empty()) {
      out_ += negated ? "\\P{" : "\\p{";
      out_ += name;
      out_ += '}';
    } else {
      AddMembers(members, negated, in_set);
    }
    if (exact) out_ += ')';
    return absl::OkStatus();
  }

  // Returns the members of a property that ICU defines in another way, or nothing.
  static std::string_view MembersOf(std::string_view name, bool in_set) {
    std::string plain;  // Names are compared without case and separators.
    for (const char byte : name) {
      if (byte != ' ' && byte != '_' && byte != '-') plain += absl::ascii_tolower(byte);
    }
    if (plain == "xdigit") return kHexadecimal;
    if (plain == "word") return in_set ? kWord : kLoneWord;
    return {};
  }

  void AddMembers(std::string_view members, bool negated, bool in_set) {
    const bool nested = negated || !in_set;
    if (nested) out_ += negated ? "[^" : "[";
    out_ += members;
    if (nested) out_ += ']';
  }

  // Appends a class such as [:punct:] of a set; `whole` is its text.
  void AddClass(std::string_view name, bool negated, std::string_view whole) {
    const auto* const known = std::ranges::find(kClasses, name, &NamedClass::name);
    if (known == std::end(kClasses)) {
      out_ += whole;
    } else {
      AddMembers(known->icu, negated, /*in_set=*/true);
    }
  }

  absl::Status Set() {
    int depth = 0;
    do {
      if (Follows("[:")) {
        const size_t end = text_.find(":]", at_);
        if (depth > 0 && end != text_.npos) {
          std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
          const bool negated = name.starts_with('^');
          if (negated) name.remove_prefix(1);
          const std::string_view whole = text_.substr(at_, end + 2 - at_);
          at_ = end + 2;
          AddClass(name, negated, whole);
          continue;
        }
      }
      const char byte = text_[at_];
      if (byte == '\\') {
        SLUICE_RETURN_IF_ERROR(Escape(/*in_set=*/true));
        continue;
      }
      // Oniguruma has no differences, and has intersections only by &&.
      for (const std::string_view other : {"--", "-[", "&["}) {
        if (Follows(other)) return Unsupported(other);
      }
      if (Follows("&&")) {
        Copy(2);
        continue;
      }
      if (byte == '[') ++depth;
      if (byte == ']') --depth;
      // ICU reads these as parts of its syntax for sets.
      if (byte == '{' || byte == '}' || byte == '$') out_ += '\\';
      Copy(1);
      if (byte == '[' && Follows("^")) Copy(1);
    } while (depth > 0 && at_ < text_.size());
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;                             // the beginning of the last atom in out_
  std::vector<OpenGroup> groups_{OpenGroup()};  // the first is the whole expression
};

}  // namespace

absl::StatusOr<std::string> FromOniguruma(std::string_view expression) {
  return Translation(expression).Run();
}

}  // namespace sluice::tokenize
