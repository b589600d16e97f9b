#include "client/analysis/commands.h"

#include <map>

namespace sluice::client {

int Analyse(const Arguments& arguments, const Console& console) {
  using Command = Arguments::Command;
  static const std::map<Command, int (*)(const Arguments&, const Console&)> commands = {
      {Command::kVerify, RunVerify},
      {Command::kQuantize, RunQuantize},
      {Command::kPlan, RunPlan},
      {Command::kEinsum, RunEinsum},
  };
  return commands.at(arguments.command)(arguments, console);
}

}  // namespace sluice::client
