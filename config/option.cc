#include "config/option.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/option_specs.h"
#include "server/common/option_specs.h"

namespace sluice {
namespace {

// Shortens a value, which may be a whole paragraph, to keep messages readable.
std::string Excerpt(absl::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.size() <= kLongest) return Quote(text);
  return absl::StrCat(Quote(text.substr(0, kLongest)), " and ", text.size() - kLongest,
                      " more bytes");
}

}  // namespace

template <>
const std::vector<OptionSpec<Config>>& OptionSpecs<Config>() {
  using S = Config;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      NoOption<S>(),  // `models`, a list of ModelSpec, which has its own specs
      Live(SLUICE_OPTION(
          model_repository, Path{},
          "Directory of models to serve in addition to the list. It has NAME/config.json, or "
          "NAME/VERSION/config.json with numbers; the highest version is loaded, and others can be "
          "loaded by name at the admin address. No file outside the directory is opened, even "
          "through links. A relative path starts at the working directory. Empty: none.")),
      SLUICE_OPTION(device, DeviceName{},
                    "The device that computes: auto, cpu or cuda:N. auto: the first GPU if this "
                    "build and this host have one, else the CPU; the log warns of a GPU that "
                    "cannot be used. cuda:N: GPU N; if the build lacks CUDA, or the host lacks the "
                    "driver or the GPU, the daemon does not start. The device is a label of every "
                    "metric."),
      SLUICE_SECTION(engine),
      SLUICE_SECTION(cpu),
      SLUICE_SECTION(cuda),
      SLUICE_SECTION(server),
  }));
  return specs;
}

std::string VariableOf(absl::string_view path) {
  return absl::StrCat("SLUICE_", absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}})));
}

std::string HelpOf(const Option& option) {
  return absl::StrCat(option.help,
                      option.live ? " A reload applies it." : " A restart applies it.");
}

const std::vector<Option>& Options() {
  static const auto& options = *new auto([] {
    std::vector<Option> all;
    for (const OptionSpec<Config>& spec : OptionSpecs<Config>()) all.push_back({spec});
    return all;
  }());
  return options;
}

const Option* FindOption(absl::string_view path) {
  const auto& all = Options();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Option& option) { return option.path == path; });
  return found == all.end() ? nullptr : &*found;
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
    int64_t number = 0;
    const bool lacks_unit = option.integer.has_value() &&
                            option.integer->unit == Unit::kMicroseconds &&
                            ParseQuantity(text, Unit::kNone, &number);
    return ConfigError(origin, option.path,
                       absl::StrCat("expected ", option.expected, ", got ", Excerpt(text),
                                    lacks_unit ? "; add a unit, for example 1s" : ""));
  }
  (*origins)[option.path] = origin;
  return absl::OkStatus();
}

}  // namespace sluice
