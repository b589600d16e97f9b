#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "client/advice.h"
#include "client/buckets_view.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/explanation.h"
#include "client/history_view.h"
#include "client/message_json.h"
#include "client/response.h"
#include "client/trials.h"

namespace sluice::client {
namespace {

using admin::v1::GetBucketsResponse;

constexpr char kClearTerminal[] = "\x1b[H\x1b[2J";

// Returns the advice for each model. The daemon tries the strategies, which takes a while, so this
// runs once and not on every redraw of --watch.
std::vector<std::vector<Advice>> AdviseAll(const GetBucketsResponse& response,
                                           const BucketsArguments& arguments,
                                           const Connection& connection) {
  std::vector<std::vector<Advice>> all;
  for (const admin::v1::ModelBuckets& model : response.models()) {
    std::optional<StrategyTrials> trials;
    if (arguments.watch_us == 0 && model.batches() >= kBatchesToJudgeBy) {
      const auto tried = connection.TryStrategies(model.model_name(), model.model_version());
      if (tried.ok() && tried->trials_size() > 0) trials = TrialsOf(*tried);
    }
    all.push_back(Advise(model, trials.has_value() ? &*trials : nullptr));
  }
  return all;
}

nlohmann::json BucketsJson(const GetBucketsResponse& response,
                           const std::vector<std::vector<Advice>>& all) {
  nlohmann::json json = ToJson(response);
  for (size_t i = 0; i < all.size(); ++i) {
    nlohmann::json& advice = json["models"][i]["advice"] = nlohmann::json::array();
    for (const Advice& each : all[i]) {
      advice.push_back({{"finding", each.finding}, {"action", each.action}});
    }
  }
  return json;
}

void Print(const GetBucketsResponse& response, const BucketsArguments& arguments,
           const Connection& connection, std::ostream* out) {
  std::vector<std::vector<Advice>> all;
  if (arguments.advise) all = AdviseAll(response, arguments, connection);
  if (arguments.json) {
    *out << JsonLine(BucketsJson(response, all));
    return;
  }
  for (int i = 0; i < response.models_size(); ++i) {
    if (i > 0) *out << "\n";
    *out << BucketsText(response.models(i));
    if (arguments.history) *out << "\n" << HistoryText(response.models(i));
    if (arguments.advise) *out << "\n" << AdviceText(all[i]);
  }
}

}  // namespace

int RunBuckets(const Arguments& arguments, const Connection& connection, const Console& console) {
  const BucketsArguments& own = arguments.buckets;
  for (;;) {
    const auto response = connection.Buckets(own.model, own.model_version, own.history);
    if (!response.ok()) return Fail(response.status(), arguments, console);
    const bool watch = own.watch_us > 0;
    if (watch && console.terminal && !own.json) *console.out << kClearTerminal;
    Print(*response, own, connection, console.out);
    console.out->flush();
    if (!watch || !console.pause || !console.pause(absl::Microseconds(own.watch_us))) {
      return kExitOk;
    }
    if (!console.terminal && !own.json) *console.out << "\n";
  }
}

int RunReview(const Arguments& arguments, const Connection& connection, const Console& console) {
  ReviewArguments own = arguments.review;
  if (own.model.empty()) {
    const absl::StatusOr<std::string> only = OnlyModel(connection);
    if (!only.ok()) return Fail(only.status(), arguments, console);
    own.model = *only;
  }
  const auto response = connection.Review(own.model, own.model_version, own.force);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  *console.out << (own.json ? JsonLine(ToJson(*response)) : ReviewText(*response));
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
