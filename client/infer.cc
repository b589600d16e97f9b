#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/response.h"

namespace sluice::client {
namespace {

// Returns one line of details to show with the text.
std::string Details(const inference::ModelInferResponse& response, const Tensors& tensors,
                    absl::Duration elapsed) {
  const int64_t generated = GeneratedTokens(tensors);
  std::string line = absl::StrFormat("%.3f s", absl::ToDoubleSeconds(elapsed));
  // Encoders and scoring requests generate no tokens.
  if (generated > 0) {
    line = absl::StrFormat("%d token%s in %s", generated, generated == 1 ? "" : "s", line);
  }
  const auto cut = response.parameters().find("truncated_tokens");
  if (cut != response.parameters().end()) {
    absl::StrAppendFormat(&line, ", prompt cut by %d tokens", cut->second.int64_param());
  }
  if (const std::string reason = FinishReason(tensors); !reason.empty()) {
    absl::StrAppendFormat(&line, ", finish %s", reason);
  }
  if (const std::optional<int64_t> seed = DrawnSeed(response); seed.has_value()) {
    absl::StrAppendFormat(&line, ", seed %d", *seed);
  }
  return line + "\n";
}

}  // namespace

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console) {
  inference::ModelInferRequest request;
  const int code = CompleteRequest(arguments.infer, arguments, connection, console, &request);
  if (code != kExitOk) return code;
  const absl::Time start = absl::Now();
  const auto response = connection.Infer(request);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  const auto tensors = DecodeOutputs(*response);
  if (!tensors.ok()) return Fail(tensors.status(), arguments, console);
  if (arguments.infer.json) {
    *console.out << JsonLine(ResponseJson(*response, *tensors));
  } else {
    *console.out << ResponseText(*tensors, /*all=*/request.outputs_size() > 0) << std::flush;
    *console.error << Details(*response, *tensors, absl::Now() - start);
  }
  return kExitOk;
}

}  // namespace sluice::client
