#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/response.h"

namespace sluice::client {
namespace {

// What a person wants to know beside the text; one line.
std::string Details(const inference::ModelInferResponse& response, const Tensors& tensors,
                    absl::Duration elapsed) {
  std::string line = absl::StrFormat("%d tokens in %.3f s", GeneratedTokens(tensors),
                                     absl::ToDoubleSeconds(elapsed));
  const Tensor* reason = FindTensor(tensors, "finish_reason");
  const auto* reasons =
      reason == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&reason->values);
  if (reasons != nullptr && !reasons->empty() && !reasons->front().empty()) {
    absl::StrAppendFormat(&line, ", finish %s", reasons->front());
  }
  const auto seed = response.parameters().find("seed");
  if (seed != response.parameters().end()) {
    absl::StrAppendFormat(&line, ", seed %d", seed->second.int64_param());
  }
  return line + "\n";
}

}  // namespace

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console) {
  inference::ModelInferRequest request = arguments.infer.request;
  if (request.model_name().empty()) {
    const auto index = connection.Index();
    if (!index.ok()) return Fail(index.status(), arguments, console);
    const auto model = OnlyModel(*index);
    if (!model.ok()) return Fail(model.status(), arguments, console);
    request.set_model_name(*model);
  }
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
