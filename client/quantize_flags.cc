#include <limits>

#include "client/command_flags.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddQuantizeCommand(Arguments* arguments, CLI::App* app) {
  QuantizeArguments& own = arguments->quantize;
  CLI::App* quantize = AddCommand(
      "quantize", "Write a model in int8, by what enters its projections on a sample of texts.",
      app);
  quantize->add_option("model_directory", own.model_directory, "The model, as it is served.")
      ->required();
  quantize
      ->add_option("--text", own.text,
                   Help("File with a text in each line, as of sluice verify; some hundred lines of "
                        "what the model will see."))
      ->required();
  quantize->add_option("--out", own.out, Help("Directory to write, which has no model yet."))
      ->required();
  quantize->add_flag_callback(
      "--plain", [&own] { own.smooth = false; },
      Help("Move no scales from activations into weights (SmoothQuant)."));
  AddFlag(
      "--keep-above",
      "Keep layers as they are stored whose output on the texts has a larger error, relative to "
      "its root mean square, such as 0.02. Default: 0, which keeps none.",
      quantize, NonNegative{}, &own.keep_above);
  AddFlag("--keep-channels",
          "Keep up to so many input channels of a layer in int8 as floats: as few as bring its "
          "error close to that with all of them, such as up to 8. For a CPU alone. Default: 0.",
          quantize, Integer{0, std::numeric_limits<int32_t>::max()}, &own.keep_channels);
  quantize->callback([=] { arguments->command = Arguments::Command::kQuantize; });
}

}  // namespace sluice::client
