#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/message_json.h"
#include "client/response.h"

namespace sluice::client {
namespace {

std::string Named(const ManageArguments& arguments) {
  if (arguments.model_version == 0) return arguments.model;
  return absl::StrCat(arguments.model, " version ", arguments.model_version);
}

int Told(const absl::Status& status, const std::string& text, const Arguments& arguments,
         const Console& console) {
  if (!status.ok()) return Fail(status, arguments, console);
  *console.out << text << "\n";
  return kExitOk;
}

}  // namespace

int RunLoad(const Arguments& arguments, const Connection& connection, const Console& console) {
  const ManageArguments& own = arguments.manage;
  return Told(connection.Load(own.model, own.model_version), absl::StrCat("loaded ", Named(own)),
              arguments, console);
}

int RunUnload(const Arguments& arguments, const Connection& connection, const Console& console) {
  const ManageArguments& own = arguments.manage;
  return Told(connection.Unload(own.model, own.model_version),
              absl::StrCat("unloaded ", Named(own)), arguments, console);
}

int RunReload(const Arguments& arguments, const Connection& connection, const Console& console) {
  const auto response = connection.Reload();
  if (!response.ok()) return Fail(response.status(), arguments, console);
  const int status = response->failed_models().empty() ? kExitOk : kExitFailed;
  if (arguments.manage.json) {
    *console.out << JsonLine(ToJson(*response));
    return status;
  }
  std::vector<std::string> changes;
  const auto add = [&](const char* what, const auto& names) {
    if (!names.empty()) changes.push_back(absl::StrCat(what, ": ", absl::StrJoin(names, ", ")));
  };
  add("applied", response->applied());
  add("loaded", response->loaded_models());
  add("unloaded", response->withdrawn_models());
  *console.out << "reloaded; "
               << (changes.empty() ? "no option and no model changed"
                                   : absl::StrJoin(changes, "; "))
               << "\n";
  if (!response->needs_restart().empty()) {
    *console.out << "changed, but needs a restart: "
                 << absl::StrJoin(response->needs_restart(), ", ") << "\n";
  }
  for (const std::string& model : response->failed_models()) {
    *console.error << "sluice: not loaded: " << absl::Utf8SafeCHexEscape(model) << "\n";
  }
  return status;
}

}  // namespace sluice::client
