#include "config/option.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "config/option_table.h"

namespace sluice {
namespace {

// Keeps messages readable when a value is a whole paragraph.
std::string Excerpt(absl::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.size() <= kLongest) return Quote(text);
  return absl::StrCat(Quote(text.substr(0, kLongest)), " and ", text.size() - kLongest,
                      " more bytes");
}

}  // namespace

std::string Option::Flag() const {
  return absl::StrCat("--", absl::StrReplaceAll(path, {{"_", "-"}}));
}

std::string Option::Environment() const {
  return absl::StrCat("SLUICE_", absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}})));
}

const std::vector<Option>& Options() {
  static const auto& table = *new std::vector<Option>(BuildOptionTable());
  return table;
}

const Option* FindOption(absl::string_view path) {
  const auto& table = Options();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Option& option) { return option.path == path; });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> KeysUnder(absl::string_view section) {
  const std::string prefix = section.empty() ? "" : absl::StrCat(section, ".");
  std::vector<std::string> keys;
  if (section.empty()) keys.emplace_back("models");
  for (const Option& option : Options()) {
    absl::string_view rest = option.path;
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    const absl::string_view key = rest.substr(0, rest.find('.'));
    if (keys.empty() || keys.back() != key) keys.emplace_back(key);
  }
  return keys;
}

std::string OriginOf(const Origins& origins, absl::string_view path) {
  const auto found = origins.find(path);
  return found == origins.end() ? "default" : found->second;
}

absl::Status ConfigError(absl::string_view origin, absl::string_view path,
                         absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", path, ": ", problem));
}

absl::Status SetOption(const Option& option, absl::string_view text, const std::string& origin,
                       Config* config, Origins* origins) {
  if (!option.parse(text, config)) {
    return ConfigError(origin, option.path,
                       absl::StrCat("expected ", option.expected, ", got ", Excerpt(text)));
  }
  (*origins)[option.path] = origin;
  return absl::OkStatus();
}

}  // namespace sluice
