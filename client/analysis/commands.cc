#include "client/analysis/commands.h"

namespace sluice::client {

int RunAnalysis(const Arguments& arguments, const Console& console) {
  switch (arguments.command) {
    case Arguments::Command::kVerify:
      return RunVerify(arguments, console);
    case Arguments::Command::kQuantize:
      return RunQuantize(arguments, console);
    case Arguments::Command::kPlan:
      return RunPlan(arguments, console);
    case Arguments::Command::kEinsum:
      return RunEinsum(arguments, console);
    default:
      return Run(arguments, console);
  }
}

}  // namespace sluice::client
