#include "client/verify_flags.h"

#include "absl/strings/numbers.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddVerifyCommand(VerifyFlags* flags, CLI::App* app) {
  CLI::App* verify =
      AddCommand("verify", "Compare what a model computes with what was saved elsewhere.", app);
  verify->add_option("model_directory", flags->model_directory, "The model, as it is served.")
      ->required();
  verify
      ->add_option("--golden", flags->golden,
                   Help("The .npz file with input_ids and outputs, as tools/save_golden.py writes "
                        "it."))
      ->required();
  verify->add_option("--tolerance", flags->tolerance,
                     Help("Largest error of a value, relative to it or to the root mean square of "
                          "its output. Default: 1e-5."));
  verify->add_option("--profile", flags->profile, "Numerics profile. Default: auto.");
}

absl::Status ReadVerifyCommand(const VerifyFlags& flags, const CLI::App& command,
                               Arguments* arguments) {
  if (command.get_name() != "verify") return absl::OkStatus();
  arguments->command = Arguments::Command::kVerify;
  arguments->verify = {flags.model_directory, flags.golden, 0, flags.profile};
  double* tolerance = &arguments->verify.tolerance;
  if (absl::SimpleAtod(flags.tolerance, tolerance) && *tolerance >= 0) return absl::OkStatus();
  return FlagError("--tolerance", "expected a number of 0 or more");
}

}  // namespace sluice::client
