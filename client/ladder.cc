#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text_wrap.h"
#include "client/buckets_view.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/message_json.h"
#include "client/response.h"
#include "client/table.h"
#include "client/trials.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using Action = LadderArguments::Action;

std::string LadderText(const v1::ModelBuckets& model) {
  std::string text = absl::StrCat("model       ", model.model_name(), " version ",
                                  model.model_version(), ", policy ", model.policy(), "\n");
  // Copied into a sorted map, because protobuf maps are unordered.
  const LadderChoice options(model.ladder_options().begin(), model.ladder_options().end());
  for (const auto& [option, value] : options) {
    absl::StrAppend(&text, option, std::string(option.size() < 20 ? 20 - option.size() : 1, ' '),
                    value, "\n");
  }
  std::vector<std::string> names;
  for (const v1::BucketUse& use : model.buckets()) {
    if (use.in_ladder()) names.push_back(BucketName(use.bucket()));
  }
  absl::StrAppend(
      &text,
      absl::StrJoin(Wrap(absl::StrCat("buckets     ", absl::StrJoin(names, " ")), kTerminalColumns),
                    "\n            "),
      "\n");
  const LadderChoice kept(model.ladder_kept().begin(), model.ladder_kept().end());
  absl::StrAppend(&text, "restart     ",
                  kept.empty() ? "as configured" : absl::StrCat("keeps ", ChoiceFlags(kept)), "\n");
  return text;
}

int Show(const Arguments& arguments, const Connection& connection, const Console& console) {
  const LadderArguments& own = arguments.ladder;
  const auto response = connection.Buckets(own.model, own.model_version);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  if (own.json) *console.out << JsonLine(ToJson(*response));
  for (int i = 0; !own.json && i < response->models_size(); ++i) {
    *console.out << (i > 0 ? "\n" : "") << LadderText(response->models(i));
  }
  return kExitOk;
}

int Try(const Arguments& arguments, const Connection& connection, const Console& console) {
  const LadderArguments& own = arguments.ladder;
  const auto response = connection.TryStrategies(own.model, own.model_version);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  if (own.json) {
    *console.out << JsonLine(ToJson(*response));
    return kExitOk;
  }
  const StrategyTrials trials = TrialsOf(*response);
  *console.out << TrialsTable(trials) << "\n"
               << absl::StrJoin(Wrap(VerdictText(trials), kTerminalColumns), "\n") << "\n";
  const StrategyTrial& best = BestOf(trials);
  *console.out << "To do: ";
  if (best.choice.empty()) {
    *console.out << "nothing.\n";
  } else {
    *console.out << "sluice ladder set " << own.model << " " << ChoiceFlags(best.choice)
                 << "\n(with --keep, the choice stays after a restart)\n";
  }
  return kExitOk;
}

int Set(const Arguments& arguments, const Connection& connection, const Console& console) {
  const LadderArguments& own = arguments.ladder;
  v1::SetLadderRequest request;
  request.set_model_name(own.model);
  request.set_model_version(own.model_version);
  request.mutable_options()->insert(own.options.begin(), own.options.end());
  request.set_keep(own.keep);
  const auto response = connection.SetLadder(request);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  *console.out << (own.json ? JsonLine(ToJson(*response)) : ReviewText(*response));
  return kExitOk;
}

}  // namespace

int RunLadder(const Arguments& given, const Connection& connection, const Console& console) {
  Arguments arguments = given;
  const Action action = arguments.ladder.action;
  if (arguments.ladder.model.empty() && action != Action::kShow) {
    const absl::StatusOr<std::string> only = OnlyModel(connection);
    if (!only.ok()) return Fail(only.status(), arguments, console);
    arguments.ladder.model = *only;
  }
  switch (action) {
    case Action::kShow:
      return Show(arguments, connection, console);
    case Action::kTry:
      return Try(arguments, connection, console);
    case Action::kSet:
    case Action::kReset:
      break;
  }
  return Set(arguments, connection, console);
}

}  // namespace sluice::client
