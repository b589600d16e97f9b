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
using admin::v1::ModelBuckets;

constexpr char kClearTerminal[] = "\x1b[H\x1b[2J";

// A model, with simulations of all strategies on its recent traffic and the advice, where these are
// needed.
struct Judged {
  const ModelBuckets& model;
  std::optional<StrategyTrials> trials = std::nullopt;
  std::vector<Advice> advice{};

  const StrategyTrials* found() const { return trials.has_value() ? &*trials : nullptr; }
};

// The daemon simulates the strategies, which takes a while, so this is not done on every redraw of
// --watch, nor if no ladder could waste less time and no advice is asked for.
Judged Judge(const ModelBuckets& model, const BucketsArguments& arguments,
             const Connection& connection) {
  Judged judged{.model = model};
  const bool needed = arguments.advise || WastedTime(model);
  const bool enough = model.last_hour().batches() >= kBatchesToJudgeBy;
  if (arguments.watch_us == 0 && needed && enough) {
    const auto tried = connection.TryStrategies(model.model_name(), model.model_version());
    if (tried.ok() && tried->trials_size() > 0) judged.trials = TrialsOf(*tried);
  }
  if (arguments.advise) judged.advice = Advise(model, judged.found());
  return judged;
}

nlohmann::json BucketsJson(const GetBucketsResponse& response, const std::vector<Judged>& all,
                           bool advise) {
  nlohmann::json json = ToJson(response);
  for (size_t i = 0; i < all.size(); ++i) {
    nlohmann::json& model = json["models"][i];
    if (const StrategyTrials* const trials = all[i].found(); trials != nullptr) {
      const StrategyTrial& best = BestOf(*trials);
      model["best_ladder"] = {
          {"name", best.name}, {"wasted_share", best.wasted_share}, {"arrivals", trials->arrivals}};
    }
    if (!advise) continue;
    nlohmann::json& advice = model["advice"] = nlohmann::json::array();
    for (const Advice& each : all[i].advice) {
      advice.push_back({{"finding", each.finding}, {"action", each.action}});
    }
  }
  return json;
}

void Print(const GetBucketsResponse& response, const BucketsArguments& arguments,
           const Connection& connection, std::ostream* out) {
  std::vector<Judged> all;
  all.reserve(response.models_size());
  for (const ModelBuckets& model : response.models()) {
    all.push_back(Judge(model, arguments, connection));
  }
  if (arguments.json) {
    *out << JsonLine(BucketsJson(response, all, arguments.advise));
    return;
  }
  for (const Judged& judged : all) {
    if (&judged != &all.front()) *out << "\n";
    *out << BucketsText(judged.model, judged.found());
    if (arguments.history) *out << "\n" << HistoryText(judged.model);
    if (arguments.advise) *out << "\n" << AdviceText(judged.advice);
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
