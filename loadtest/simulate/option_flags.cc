#include "loadtest/simulate/option_flags.h"

#include "absl/strings/str_join.h"
#include "base/text_wrap.h"

namespace sluice::loadtest {

std::string FlagHelp(absl::string_view text) {
  constexpr size_t kColumns = 70;
  return absl::StrJoin(Wrap(text, kColumns), "\n");
}

absl::string_view HelpWithoutZero(absl::string_view help) {
  return help.substr(0, help.find(" 0: "));
}

}  // namespace sluice::loadtest
