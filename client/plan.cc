#include <algorithm>
#include <fstream>
#include <istream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/plan_view.h"
#include "engine/cascade/plan_report.h"
#include "engine/cpu/attention_choice.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/device_probe.h"
#include "engine/einsum/einsum_string.h"
#include "engine/einsum/paper.h"
#include "engine/einsum/text.h"
#include "engine/model/checkpoint.h"
#include "engine/model/directory.h"
#include "engine/model/model.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using einsum::DeviceDescription;
using nlohmann::json;

constexpr int64_t kDefaultSize = 64;
constexpr size_t kMostBytes = einsum::kMaxTextBytes;

int Refuse(const absl::Status& status, const Console& console) {
  *console.error << "sluice: " << status.message() << "\n";
  return kExitUsage;
}

// Returns the text of a file or of standard input, "-". Returns InvalidArgument if it is too long,
// and NotFound.
absl::StatusOr<std::string> ReadText(const std::string& path, std::istream* standard_input) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? *standard_input : file;
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() <= kMostBytes) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, ": has more than ", kMostBytes, " bytes"));
}

absl::StatusOr<DeviceDescription> DeviceFor(const std::string& device, int threads) {
  if (device.empty() || device == "cpu") {
    kernels::ThreadPool pool(threads > 0 ? threads : kernels::AvailableCpus());
    return ProbeDevice({kernels::StoredPrecisionProfile(), &pool});
  }
  return ReadDeviceFile(device);
}

// Returns the model; without weights if the directory has no more than config.json.
absl::StatusOr<std::shared_ptr<const Model>> ModelOf(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const Directory directory, Directory::Open(path));
  if (Checkpoint::IsIn(directory)) return LoadModel(path, 1, directory);
  auto model = std::make_shared<Model>();
  model->name = path;
  SLUICE_ASSIGN_OR_RETURN(model->config, ReadModelConfig(directory));
  model->graph = BuildGraph(model->config);
  return model;
}

// Returns the JSON of the plan, with what its ops take on this machine.
absl::StatusOr<std::string> ProfileOf(const PlanArguments& plan, const PlanQuery& query,
                                      std::shared_ptr<const Model> model) {
  if (model->checkpoint.tensors().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile: ", plan.model_directory, " has no weights"));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Backend> backend,
      MakeCpuBackend({.threads = plan.threads},
                     {.variant = plan.variant, .device = plan.device == "cpu" ? "" : plan.device}));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ExecutableModel> executable,
                          backend->Load(std::move(model)));
  return executable->DescribePlan(query);
}

absl::StatusOr<json> PlanOfDirectory(const PlanArguments& plan) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelOf(plan.model_directory));
  const PlanQuery query = {plan.sequences, plan.tokens, plan.context, plan.profile};
  if (plan.profile) {
    SLUICE_ASSIGN_OR_RETURN(const std::string profile, ProfileOf(plan, query, model));
    return json::parse(profile);
  }
  SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, DeviceFor(plan.device, plan.threads));
  const AttentionDecision attention = ChooseAttention(
      plan.variant, model->config, [&]() -> const auto& { return device; });
  SLUICE_ASSIGN_OR_RETURN(const PlanReport report,
                          MakePlanReport(*model, device,
                                         {.step = StepOf(model->config, query),
                                          .variant = attention.variant,
                                          .reason = attention.reason}));
  return json::parse(PlanReportText(report));
}

// Returns the sizes of all symbols of the cascade, and a default for those that `text` lacks.
absl::StatusOr<einsum::Sizes> SizesFor(const einsum::Cascade& cascade, const std::string& text) {
  einsum::Sizes sizes;
  if (!text.empty()) {
    SLUICE_ASSIGN_OR_RETURN(sizes, einsum::ParseSizes(text));
  }
  for (const einsum::Rank& rank : cascade.ranks) {
    if (!rank.size.symbol.empty()) sizes.emplace(rank.size.symbol, kDefaultSize);
  }
  return sizes;
}

absl::StatusOr<einsum::Cascade> CascadeFor(const EinsumArguments& own, std::istream* in) {
  if (!own.text.empty()) return einsum::ParseEinsumString(own.text);
  if (!own.file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadText(own.file, in));
    return einsum::Parse(text);
  }
  for (const einsum::PaperCascade& paper : einsum::PaperCascades()) {
    if (paper.name == own.paper) return einsum::Parse(paper.text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--paper: there is no cascade '", own.paper, "'; see sluice einsum --help"));
}

absl::StatusOr<std::string> Derive(const EinsumArguments& own, einsum::Notation notation) {
  constexpr int64_t kChunk = 512;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DerivationStep> steps,
                          DeriveOnePass({.causal = false}, kChunk));
  if (!own.json) return DerivationText(steps, notation);
  json all = json::array();
  for (const DerivationStep& step : steps) {
    all.push_back({{"rule", step.rule},
                   {"condition", step.condition},
                   {"passes", step.passes},
                   {"cascade", einsum::Print(step.cascade, notation)}});
  }
  return all.dump() + "\n";
}

absl::StatusOr<std::string> Describe(const EinsumArguments& own, const Console& console) {
  const einsum::Notation notation =
      own.unicode ? einsum::Notation::kUnicode : einsum::Notation::kAscii;
  if (own.derive) return Derive(own, notation);
  SLUICE_ASSIGN_OR_RETURN(const einsum::Cascade cascade, CascadeFor(own, console.in));
  SLUICE_ASSIGN_OR_RETURN(const einsum::Sizes sizes, SizesFor(cascade, own.sizes));
  SLUICE_ASSIGN_OR_RETURN(const einsum::Analysis analysis, einsum::Analyze(cascade, sizes));
  SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, DeviceFor(own.device, 0));
  const einsum::CostEstimate cost = einsum::Estimate(cascade, analysis, device);
  if (own.json) return CascadeJson(cascade, analysis, cost).dump() + "\n";
  return CascadeText(cascade, analysis, cost, notation);
}

}  // namespace

int RunPlan(const Arguments& arguments, const Console& console) {
  const PlanArguments& plan = arguments.plan;
  if (plan.probe) {
    const auto device = DeviceFor(plan.device, plan.threads);
    if (!device.ok()) return Refuse(device.status(), console);
    *console.out << einsum::DeviceDescriptionJson(*device) << "\n";
    return kExitOk;
  }
  const auto report = PlanOfDirectory(plan);
  if (!report.ok()) return Refuse(report.status(), console);
  *console.out << (plan.json ? report->dump() + "\n" : PlanText(*report));
  return kExitOk;
}

int RunServedPlan(const Arguments& arguments, const Connection& connection,
                  const Console& console) {
  const PlanArguments& plan = arguments.plan;
  admin::v1::DescribePlanRequest request;
  request.set_model_name(plan.model);
  request.set_model_version(plan.model_version);
  request.set_sequences(plan.sequences);
  request.set_tokens(plan.tokens);
  request.set_context(plan.context);
  request.set_profile(plan.profile);
  const auto response = connection.DescribePlan(request);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  if (plan.json) {
    *console.out << response->json() << "\n";
    return kExitOk;
  }
  constexpr int kMostDepth = 12;
  const auto report = ParseJson(response->json(), kMostDepth);
  if (report.ok()) {
    try {
      *console.out << PlanText(*report);
      return kExitOk;
    } catch (const json::exception&) {  // a key is missing or has another type
    }
  }
  *console.error << "sluice: the server's description of the plan cannot be read\n";
  return kExitFailed;
}

int RunEinsum(const Arguments& arguments, const Console& console) {
  const auto text = Describe(arguments.einsum, console);
  if (!text.ok()) return Refuse(text.status(), console);
  *console.out << *text;
  return kExitOk;
}

}  // namespace sluice::client
