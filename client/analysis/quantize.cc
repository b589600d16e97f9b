#include "verify/quantize.h"

#include <ostream>

#include "client/analysis/commands.h"
#include "client/exit_code.h"

namespace sluice::client {

int RunQuantize(const Arguments& arguments, const Console& console) {
  const QuantizeArguments& quantize = arguments.quantize;
  const auto report =
      verify::QuantizeModel(quantize.model_directory, {.text = quantize.text,
                                                       .out = quantize.out,
                                                       .smooth = quantize.smooth,
                                                       .keep_above = quantize.keep_above,
                                                       .keep_channels = quantize.keep_channels});
  if (!report.ok()) return UsageError(report.status(), console);
  *console.out << *report;
  return kExitOk;
}

}  // namespace sluice::client
