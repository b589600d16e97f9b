#include "client/parameter_flags.h"

#include <algorithm>

#include "base/status_macros.h"
#include "client/flag_values.h"
#include "client/parameter.h"

namespace sluice::client {

void AddParameterFlags(std::initializer_list<std::string_view> names, ParameterFlags* flags,
                       CLI::App* command) {
  flags->resize(Parameters().size());
  for (size_t i = 0; i < Parameters().size(); ++i) {
    const ParameterInfo& info = *Parameters()[i];
    const bool wanted = std::find(names.begin(), names.end(), info.name) != names.end();
    if (names.size() > 0 && !wanted) continue;
    std::vector<std::string>* values = &(*flags)[i];
    if (info.kind() == ParameterKind::kSwitch) {
      command->add_flag_callback(
          FlagOf(info), [values] { *values = {"true"}; }, Help(HelpOf(info)));
      continue;
    }
    CLI::Option* option = command->add_option(FlagOf(info), *values, Help(HelpOf(info)));
    if (info.kind() != ParameterKind::kTexts) option->expected(1);
    option->allow_extra_args(false);  // each --flag takes one value, not all the words that follow
  }
}

absl::Status SetParameters(const ParameterFlags& flags, inference::ModelInferRequest* request) {
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].empty()) continue;
    const ParameterInfo& info = *Parameters()[i];
    const absl::Status status = SetParameter(info, flags[i], request);
    if (!status.ok()) return FlagError(FlagOf(info), status.message());
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
