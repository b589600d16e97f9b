#include "client/quantize_flags.h"

#include "absl/strings/numbers.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddQuantizeCommand(QuantizeFlags* flags, CLI::App* app) {
  CLI::App* quantize = AddCommand(
      "quantize", "Write a model in int8, by what enters its projections on a sample of texts.",
      app);
  QuantizeArguments& arguments = flags->arguments;
  quantize->add_option("model_directory", arguments.model_directory, "The model, as it is served.")
      ->required();
  quantize
      ->add_option("--text", arguments.text,
                   Help("File with a text in each line, as of sluice verify; some hundred lines of "
                        "what the model will see."))
      ->required();
  quantize->add_option("--out", arguments.out, Help("Directory to write, which has no model yet."))
      ->required();
  quantize->add_flag("--plain", flags->plain,
                     Help("Move no scales from activations into weights (SmoothQuant)."));
  quantize->add_option("--keep-above", flags->keep_above,
                       Help("Keep layers as they are stored whose output on the texts has a larger "
                            "error, relative to its root mean square, such as 0.02. Default: 0, "
                            "which keeps none."));
  quantize->add_option(
      "--keep-channels", flags->keep_channels,
      Help("Keep up to so many input channels of a layer in int8 as floats: as few "
           "as bring its error close to that with all of them, such as up to 8. "
           "For a CPU alone. Default: 0."));
}

absl::Status ReadQuantizeCommand(const QuantizeFlags& flags, const CLI::App& command,
                                 Arguments* arguments) {
  if (command.get_name() != "quantize") return absl::OkStatus();
  arguments->command = Arguments::Command::kQuantize;
  arguments->quantize = flags.arguments;
  arguments->quantize.smooth = !flags.plain;
  double& keep_above = arguments->quantize.keep_above;
  if (!absl::SimpleAtod(flags.keep_above, &keep_above) || !(keep_above >= 0)) {
    return FlagError("--keep-above", "expected a number of 0 or more");
  }
  arguments->quantize.keep_channels = flags.keep_channels;
  if (flags.keep_channels < 0) {
    return FlagError("--keep-channels", "expected a number of 0 or more");
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
