#include <limits>

#include "client/command_flags.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddQuantizeCommand(Arguments* arguments, CLI::App* app) {
  QuantizeArguments& own = arguments->quantize;
  CLI::App* quantize =
      AddCommand("quantize", "Write a model in int8, calibrated on a sample of texts.", app);
  quantize->add_option("model_directory", own.model_directory, "The model directory.")->required();
  quantize
      ->add_option("--text", own.text,
                   Help("File with one text per line, as for sluice verify; a few hundred lines "
                        "typical of the model's traffic."))
      ->required();
  quantize->add_option("--out", own.out, Help("Directory to write; must not contain a model."))
      ->required();
  quantize->add_flag_callback(
      "--plain", [&own] { own.smooth = false; },
      Help("Do not move scales from activations into weights (SmoothQuant)."));
  AddFlag("--keep-above",
          "Keep the stored type of layers whose output on the texts has a larger error than this, "
          "relative to its root mean square, such as 0.02. Default: 0, which quantises all layers.",
          quantize, NonNegative{}, &own.keep_above);
  AddFlag("--keep-channels",
          "Keep up to this many input channels of an int8 layer as floats, such as 8: the fewest "
          "that bring its error close to the error with all of them. On a CPU only. Default: 0.",
          quantize, Integer{0, std::numeric_limits<int32_t>::max()}, &own.keep_channels);
  quantize->callback([=] { arguments->command = Arguments::Command::kQuantize; });
}

}  // namespace sluice::client
