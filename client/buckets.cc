#include <nlohmann/json.hpp>
#include <ostream>

#include "client/advice.h"
#include "client/buckets_view.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/explanation.h"
#include "client/message_json.h"
#include "client/response.h"

namespace sluice::client {
namespace {

using admin::v1::GetBucketsResponse;

constexpr char kClearTerminal[] = "\x1b[H\x1b[2J";

nlohmann::json BucketsJson(const GetBucketsResponse& response, bool advise) {
  nlohmann::json json = ToJson(response);
  if (!advise || !json.is_object()) return json;
  for (int i = 0; i < response.models_size(); ++i) {
    nlohmann::json& advice = json["models"][i]["advice"] = nlohmann::json::array();
    for (const Advice& each : Advise(response.models(i))) {
      advice.push_back({{"finding", each.finding}, {"action", each.action}});
    }
  }
  return json;
}

void Print(const GetBucketsResponse& response, const BucketsArguments& arguments,
           std::ostream* out) {
  if (arguments.json) {
    *out << JsonLine(BucketsJson(response, arguments.advise));
    return;
  }
  for (int i = 0; i < response.models_size(); ++i) {
    if (i > 0) *out << "\n";
    *out << BucketsText(response.models(i));
    if (arguments.advise) *out << "\n" << AdviceText(Advise(response.models(i)));
  }
}

}  // namespace

int RunBuckets(const Arguments& arguments, const Connection& connection, const Console& console) {
  const BucketsArguments& own = arguments.buckets;
  for (;;) {
    const auto response = connection.Buckets(own.model, own.model_version);
    if (!response.ok()) return Fail(response.status(), arguments, console);
    const bool watch = own.watch_us > 0;
    if (watch && console.terminal && !own.json) *console.out << kClearTerminal;
    Print(*response, own, console.out);
    console.out->flush();
    if (!watch || !console.pause || !console.pause(absl::Microseconds(own.watch_us))) {
      return kExitOk;
    }
    if (!console.terminal && !own.json) *console.out << "\n";
  }
}

int RunOptimize(const Arguments& arguments, const Connection& connection, const Console& console) {
  OptimizeArguments own = arguments.optimize;
  if (own.model.empty()) {
    const auto index = connection.Index();
    if (!index.ok()) return Fail(index.status(), arguments, console);
    const absl::StatusOr<std::string> only = OnlyModel(*index);
    if (!only.ok()) return Fail(only.status(), arguments, console);
    own.model = *only;
  }
  const auto response = connection.Optimize(own.model, own.model_version, own.force);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  *console.out << (own.json ? JsonLine(ToJson(*response)) : OptimizeText(*response));
  return kExitOk;
}

int RunExplain(const Arguments& arguments, const Connection& connection, const Console& console) {
  const ExplainArguments& own = arguments.explain;
  const auto response = connection.Explain(own.request_id, own.model);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  *console.out << (own.json ? JsonLine(ToJson(*response))
                            : ExplanationText(own.request_id, *response));
  return kExitOk;
}

}  // namespace sluice::client
