#include "client/commands.h"

#include <map>
#include <ostream>

#include "client/exit_code.h"
#include "client/request.h"

namespace sluice::client {

int Run(const Arguments& arguments, const Console& console, const RunAnalysis& analysis) {
  using Command = Arguments::Command;
  if (arguments.command == Command::kPrint) {
    *console.out << arguments.text;
    return kExitOk;
  }
  if (arguments.command == Command::kFit) return RunFit(arguments, console);
  const std::map<Command, RunCommand> commands = {
      {Command::kInfer, arguments.infer.file.empty() ? RunInfer : RunFile},
      {Command::kGenerate, RunGenerate},
      {Command::kEmbed, RunEmbed},
      {Command::kRerank, RunRerank},
      {Command::kClassify, RunClassify},
      {Command::kTag, RunTag},
      {Command::kExtract, RunExtract},
      {Command::kModels, RunModels},
      {Command::kStats, RunStats},
      {Command::kHealth, RunHealth},
      {Command::kDoctor, RunDoctor},
      {Command::kBuckets, RunBuckets},
      {Command::kReview, RunReview},
      {Command::kLadder, RunLadder},
      {Command::kExplain, RunExplain},
      {Command::kLoad, RunLoad},
      {Command::kUnload, RunUnload},
      {Command::kReload, RunReload},
  };
  const auto found = commands.find(arguments.command);
  if (found == commands.end()) return analysis(arguments, console);
  return RunConnected(found->second, arguments, console);
}

int RunConnected(RunCommand run, const Arguments& arguments, const Console& console) {
  const auto credentials = CredentialsOf(arguments.connection);
  if (!credentials.ok()) return UsageError(credentials.status(), console);
  const Connection connection(arguments, *credentials);
  if (arguments.chosen_admin) *console.error << "admin address: " << arguments.server << "\n";
  if (arguments.daemon.has_value()) {
    const auto daemon = Connection::To(*arguments.daemon, arguments.deadline_us);
    if (!daemon.ok()) return UsageError(daemon.status(), console);
    const std::string& address = arguments.daemon->address;
    const auto instance = daemon->Instance();
    if (!instance.ok() && arguments.chosen_admin) {
      *console.error << "sluice: cannot check that " << arguments.server
                     << " is the admin address of the server " << address << ": "
                     << instance.status().ToString(absl::StatusToStringMode::kWithNoExtraData)
                     << "\nhint: give the admin address with --admin\n";
      return ExitCodeOf(instance.status());
    }
    const absl::Status same = CheckSameDaemon(instance, address, connection, arguments.server);
    if (!same.ok()) return UsageError(same, console);
  }
  return run(arguments, connection, console);
}

int RunHealth(const Arguments& arguments, const Connection& connection, const Console& console) {
  const auto health = connection.Health(arguments.health.service);
  if (!health.ok()) return Fail(health.status(), arguments, console);
  const auto status = health->status();
  *console.out << grpc::health::v1::HealthCheckResponse::ServingStatus_Name(status) << "\n";
  return status == grpc::health::v1::HealthCheckResponse::SERVING ? kExitOk : kExitFailed;
}

int CompleteRequest(const RequestArguments& request_arguments, const Arguments& arguments,
                    const Connection& connection, const Console& console,
                    inference::ModelInferRequest* request) {
  *request = request_arguments.request;
  if (request_arguments.text_from_input) {
    if (const absl::Status status = ReadText(*console.in, request); !status.ok()) {
      *console.error << "sluice: standard input: " << status.message() << "\n";
      return kExitUsage;
    }
  }
  if (!request->model_name().empty()) return kExitOk;
  const auto model = OnlyModel(connection);
  if (!model.ok()) return Fail(model.status(), arguments, console);
  request->set_model_name(*model);
  return kExitOk;
}

int UsageError(const absl::Status& status, const Console& console) {
  *console.error << "sluice: " << status.message() << "\n";
  return kExitUsage;
}

int Fail(const absl::Status& status, const Arguments& arguments, const Console& console) {
  *console.error << FailureText(status, arguments);
  return ExitCodeOf(status);
}

}  // namespace sluice::client
