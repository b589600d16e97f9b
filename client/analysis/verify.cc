#include <ostream>

#include "client/analysis/commands.h"
#include "client/exit_code.h"
#include "verify/against_f32.h"
#include "verify/report.h"

namespace sluice::client {

int RunVerify(const Arguments& arguments, const Console& console) {
  const VerifyArguments& verify = arguments.verify;
  CpuOptions options;
  options.profile = verify.profile;
  const bool against = !verify.text.empty();
  bool same = against;
  ModelOptions model;
  if (const auto wanted = EnumOf<Quantization>(verify.quantization)) {
    model.quantization = {.projections = *wanted, .head = verify.quantize_head};
    if (verify.quantization_group != 0) model.quantization->group = verify.quantization_group;
  }
  model.kv_dtype = EnumOf<KvType>(verify.kv_dtype);
  const auto report = against ? verify::VerifyAgainstF32(verify.model_directory, verify.text,
                                                         options, model, verify.reference)
                              : verify::Verify(verify.model_directory, verify.golden,
                                               verify.tolerance, options, &same);
  if (!report.ok()) return UsageError(report.status(), console);
  *console.out << *report;
  return same ? kExitOk : kExitFailed;
}

}  // namespace sluice::client
