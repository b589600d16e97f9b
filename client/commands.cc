#include "client/commands.h"

#include <ostream>

#include "client/exit_code.h"
#include "client/request.h"

namespace sluice::client {

int Run(const Arguments& arguments, const Console& console) {
  if (arguments.command == Arguments::Command::kPrint) {
    *console.out << arguments.text;
    return kExitOk;
  }
  if (arguments.command == Arguments::Command::kFit) return RunFit(arguments, console);
  if (arguments.command == Arguments::Command::kVerify) return RunVerify(arguments, console);
  if (arguments.command == Arguments::Command::kQuantize) return RunQuantize(arguments, console);
  if (arguments.command == Arguments::Command::kEinsum) return RunEinsum(arguments, console);
  if (arguments.command == Arguments::Command::kPlan && arguments.plan.model.empty()) {
    return RunPlan(arguments, console);
  }
  const auto credentials = CredentialsOf(arguments.connection);
  if (!credentials.ok()) {
    *console.error << "sluice: " << credentials.status().message() << "\n";
    return kExitUsage;
  }
  const Connection connection(arguments, *credentials);
  switch (arguments.command) {
    case Arguments::Command::kInfer:
      return arguments.infer.file.empty() ? RunInfer(arguments, connection, console)
                                          : RunFile(arguments, connection, console);
    case Arguments::Command::kGenerate:
      return RunGenerate(arguments, connection, console);
    case Arguments::Command::kEmbed:
      return RunEmbed(arguments, connection, console);
    case Arguments::Command::kRerank:
      return RunRerank(arguments, connection, console);
    case Arguments::Command::kClassify:
      return RunClassify(arguments, connection, console);
    case Arguments::Command::kTag:
      return RunTag(arguments, connection, console);
    case Arguments::Command::kModels:
      return RunModels(arguments, connection, console);
    case Arguments::Command::kStats:
      return RunStats(arguments, connection, console);
    case Arguments::Command::kHealth:
      return RunHealth(arguments, connection, console);
    case Arguments::Command::kDoctor: {
      Arguments of_admin = arguments;
      of_admin.server = arguments.doctor.admin;
      return RunDoctor(arguments, connection, Connection(of_admin, *credentials), console);
    }
    case Arguments::Command::kBuckets:
      return RunBuckets(arguments, connection, console);
    case Arguments::Command::kOptimize:
      return RunOptimize(arguments, connection, console);
    case Arguments::Command::kLadder:
      return RunLadder(arguments, connection, console);
    case Arguments::Command::kExplain:
      return RunExplain(arguments, connection, console);
    case Arguments::Command::kLoad:
      return RunLoad(arguments, connection, console);
    case Arguments::Command::kUnload:
      return RunUnload(arguments, connection, console);
    case Arguments::Command::kReload:
      return RunReload(arguments, connection, console);
    case Arguments::Command::kPlan:
      return RunServedPlan(arguments, connection, console);
    case Arguments::Command::kFit:
    case Arguments::Command::kVerify:
    case Arguments::Command::kQuantize:
    case Arguments::Command::kEinsum:
    case Arguments::Command::kPrint:
      break;
  }
  return kExitUsage;
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
  const auto index = connection.Index();
  if (!index.ok()) return Fail(index.status(), arguments, console);
  const auto model = OnlyModel(*index);
  if (!model.ok()) return Fail(model.status(), arguments, console);
  request->set_model_name(*model);
  return kExitOk;
}

int Fail(const absl::Status& status, const Arguments& arguments, const Console& console) {
  *console.error << FailureText(status, arguments.server);
  return ExitCodeOf(status);
}

}  // namespace sluice::client
