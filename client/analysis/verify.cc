#include <nlohmann/json.hpp>
#include <ostream>

#include "client/analysis/commands.h"
#include "client/exit_code.h"
#include "client/response.h"
#include "verify/against_f32.h"
#include "verify/report.h"

namespace sluice::client {
namespace {

// Prints a result, or the error in its place. Returns the exit status.
template <typename Result>
int Print(const absl::StatusOr<Result>& result, bool json, bool same, const Console& console) {
  if (!result.ok()) return UsageError(result.status(), console);
  *console.out << (json ? JsonLine(verify::ReportJson(*result)) : verify::Report(*result));
  return same ? kExitOk : kExitFailed;
}

}  // namespace

int RunVerify(const Arguments& arguments, const Console& console) {
  const VerifyArguments& own = arguments.verify;
  CpuOptions options;
  options.profile = own.profile;
  if (own.text.empty()) {
    const auto made = verify::Verify(own.model_directory, own.golden, own.tolerance, options);
    return Print(made, own.json, made.ok() && made->same(), console);
  }
  ModelOptions model;
  if (const auto wanted = EnumOf<Quantization>(own.quantization)) {
    model.quantization = {.projections = *wanted, .head = own.quantize_head};
    if (own.quantization_group != 0) model.quantization->group = own.quantization_group;
  }
  model.kv_dtype = EnumOf<KvType>(own.kv_dtype);
  return Print(
      verify::VerifyAgainstF32(own.model_directory, own.text, options, model, own.reference),
      own.json, /*same=*/true, console);
}

}  // namespace sluice::client
