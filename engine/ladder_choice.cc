#include "engine/ladder_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

constexpr const char* kChoosable[] = {"strategy",         "fixed_tokens",      "ratio",
                                      "min_tokens",       "cap_tokens",        "max_buckets",
                                      "min_bucket_usage", "memory_limit_bytes"};

}  // namespace

bool IsChoosable(absl::string_view option) {
  return std::ranges::any_of(kChoosable, [&](const char* path) { return option == path; });
}

std::string LadderChoiceValue::Expected() const {
  return absl::StrCat("OPTION=VALUE of engine.ladder, separated by spaces, with OPTION one of ",
                      absl::StrJoin(kChoosable, ", "), "; or nothing");
}

bool LadderChoiceValue::Parse(absl::string_view text, LadderChoice* value) const {
  LadderChoice choice;
  for (const absl::string_view item : absl::StrSplit(text, ' ', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (!choice.insert(halves).second) return false;
  }
  if (!Apply(choice, {}).ok()) return false;
  *value = std::move(choice);
  return true;
}

std::string LadderChoiceValue::Format(const LadderChoice& value) const {
  return absl::StrJoin(value, " ", absl::PairFormatter("="));
}

absl::StatusOr<LadderOptions> Apply(const LadderChoice& choice, LadderOptions options) {
  for (const auto& [path, value] : choice) {
    if (!IsChoosable(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quote(path), " cannot be chosen for a model; expected one of ",
                       absl::StrJoin(kChoosable, ", ")));
    }
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>(path);
    if (!spec.parse(value, &options)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": expected ", spec.expected, ", got ", Quote(value)));
    }
  }
  return options;
}

LadderChoice ChoiceOf(const LadderOptions& options) {
  LadderChoice choice;
  for (const char* path : kChoosable) {
    choice[path] = OptionSpecOf<LadderOptions>(path).format(options);
  }
  return choice;
}

}  // namespace sluice
