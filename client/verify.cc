#include <ostream>

#include "client/commands.h"
#include "client/exit_code.h"
#include "verify/report.h"

namespace sluice::client {

int RunVerify(const Arguments& arguments, const Console& console) {
  const VerifyArguments& verify = arguments.verify;
  CpuOptions options;
  options.profile = verify.profile;
  bool same = false;
  const auto report =
      verify::Verify(verify.model_directory, verify.golden, verify.tolerance, options, &same);
  if (!report.ok()) {
    *console.error << "sluice: " << report.status().message() << "\n";
    return kExitUsage;
  }
  *console.out << *report;
  return same ? kExitOk : kExitFailed;
}

}  // namespace sluice::client
