#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cascades/cascade_report.h"
#include "cascades/device_probe.h"
#include "cascades/einsum/conditions.h"
#include "cascades/einsum/einsum_string.h"
#include "cascades/einsum/optimize_cascade.h"
#include "cascades/einsum/paper.h"
#include "cascades/einsum/text.h"
#include "client/analysis/commands.h"
#include "client/analysis/plan_view.h"
#include "client/exit_code.h"
#include "client/flag_values.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/kernel_count.h"
#include "engine/cpu/op_times.h"
#include "engine/cpu/select_attention.h"
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

// Returns the text of a file, or of standard input for "-". Returns NotFound if the file cannot be
// read, and InvalidArgument if it is too long.
absl::StatusOr<std::string> ReadText(const std::string& path, std::istream* standard_input) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? *standard_input : file;
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() <= kMostBytes) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, ": has more than ", kMostBytes, " bytes"));
}

bool IsThisMachine(const std::string& device) { return device.empty() || device == "cpu"; }

absl::StatusOr<DeviceDescription> DeviceFor(const std::string& device, int threads) {
  if (!IsThisMachine(device)) return ReadDeviceFile(device);
  kernels::ThreadPool pool(threads > 0 ? threads : kernels::AvailableCpus());
  return ProbeDevice({kernels::StoredPrecisionProfile(), &pool});
}

// Measures this machine in turns with a profile, or does nothing if a file describes the device.
class Ceilings {
 public:
  Ceilings(const std::string& device, int threads)
      : device_(device), pool_(threads > 0 ? threads : kernels::AvailableCpus()) {
    if (IsThisMachine(device))
      probe_.emplace(kernels::Context{kernels::StoredPrecisionProfile(), &pool_});
  }

  void Measure() {
    if (probe_.has_value()) probe_->Measure();
  }

  // Returns the best rates of all turns. Requires a turn.
  absl::StatusOr<DeviceDescription> Device() const {
    if (probe_.has_value()) return probe_->device();
    return ReadDeviceFile(device_);
  }

 private:
  const std::string device_;
  kernels::ThreadPool pool_;
  std::optional<DeviceProbe> probe_;
};

// Returns the model. It has no weights if the directory contains only config.json.
absl::StatusOr<std::shared_ptr<const Model>> ModelOf(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const Directory directory, Directory::Open(path));
  if (Checkpoint::IsIn(directory)) return LoadModel(path, 1, directory);
  auto model = std::make_shared<Model>();
  model->name = path;
  SLUICE_ASSIGN_OR_RETURN(model->config, ReadModelConfig(directory));
  model->graph = BuildGraph(model->config);
  return model;
}

StepSizes StepSizesOf(const PlanArguments& plan) {
  return {.sequences = plan.sequences, .tokens = plan.tokens, .context = plan.context};
}

// Returns the description of a step, with the times of its ops measured on this machine, in turns
// with the machine's ceilings.
absl::StatusOr<StepDescription> ProfileOf(const PlanArguments& plan,
                                          const std::shared_ptr<const Model>& model,
                                          Ceilings* ceilings) {
  if (model->checkpoint.tensors().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile: ", plan.model_directory,
                     " has no weights; a profile needs the model's .safetensors files"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeCpuBackend({.threads = plan.threads}, {.variant = plan.variant}));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ExecutableModel> executable, backend->Load(model));
  SLUICE_ASSIGN_OR_RETURN(StepDescription step,
                          executable->DescribeStep(StepSizesOf(plan), /*profile=*/false));
  SLUICE_ASSIGN_OR_RETURN(step.seconds, TimeOps(static_cast<const CpuModel&>(*executable), *model,
                                                step.step, [&] { ceilings->Measure(); }));
  return step;
}

// Returns the report. A description of this machine is labelled with the profile of the step.
absl::StatusOr<CascadeReport> ReportOf(const StepDescription& step, const PlanArguments& plan,
                                       DeviceDescription device) {
  if (IsThisMachine(plan.device) && !step.profile.empty()) {
    device.name = absl::StrCat("cpu, ", device.workers, " threads, ", step.profile);
  }
  return MakeCascadeReport(step, device,
                           CountKernels(*step.model, step.step, step.attention, device.workers));
}

// Prints the settings of the model's folder, so that the report stays a text or a JSON document.
void PrintSettings(const ModelConfig& config, const Console& console) {
  std::vector<std::string> settings;
  for (const ModelSetting& setting : SettingsOf(config)) {
    if (setting.name == "ignored") continue;  // these are warnings
    settings.push_back(absl::StrCat(setting.name, " ", absl::CEscape(setting.value)));
  }
  if (!config.serving.prompts.empty()) {
    settings.push_back(absl::StrCat(
        "prompts ",
        absl::StrJoin(config.serving.prompts, " ", [](std::string* out, const NamedPrompt& prompt) {
          out->append(absl::CEscape(prompt.name));
        })));
  }
  *console.error << "sluice: settings: " << absl::StrJoin(settings, ", ") << "\n";
  for (const std::string& warning : config.warnings) {
    *console.error << "sluice: warning: " << warning << "\n";
  }
}

absl::StatusOr<CascadeReport> ReportOfDirectory(const PlanArguments& plan, const Console& console) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelOf(plan.model_directory));
  PrintSettings(model->config, console);
  if (plan.profile) {
    Ceilings ceilings(plan.device, plan.threads);
    SLUICE_ASSIGN_OR_RETURN(const StepDescription profile, ProfileOf(plan, model, &ceilings));
    SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, ceilings.Device());
    return ReportOf(profile, plan, device);
  }
  StepDescription step = {.model = model, .step = {}, .weight_bytes = WeightBytes(*model)};
  SLUICE_ASSIGN_OR_RETURN(step.step, CompleteStep(model->config, StepSizesOf(plan)));
  SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, DeviceFor(plan.device, plan.threads));
  const SelectedAttention selected = SelectAttention(plan.variant, model->config, device.workers);
  step.attention = selected.variant;
  step.attention_reason = selected.reason;
  step.profile = ServedProfile(*model, kernels::StoredPrecisionProfile());
  return ReportOf(step, plan, device);
}

// Returns the description that a server sent, or InvalidArgument if it is malformed.
absl::StatusOr<StepDescription> ReadDescription(const admin::v1::DescribeStepResponse& response,
                                                const std::string& name) {
  auto model = std::make_shared<Model>();
  model->name = name;
  SLUICE_ASSIGN_OR_RETURN(model->config, ParseModelConfig(response.config_json()));
  const std::optional<KvType> kv_dtype = EnumOf<KvType>(response.kv_dtype());
  const auto variant = ParseAttentionVariant(response.attention_variant());
  if (!kv_dtype.has_value() || !variant.has_value() ||
      variant->kind == AttentionVariant::Kind::kAuto) {
    return absl::InvalidArgumentError("unknown kv_dtype or attention_variant");
  }
  model->config.kv_dtype = *kv_dtype;
  model->graph = BuildGraph(model->config);
  if (model->config.has_lm_head && response.weight_bytes_size() != std::ssize(model->graph.ops)) {
    // The server may serve the states of a checkpoint without the head of its architecture.
    model->config.has_lm_head = false;
    model->graph = BuildGraph(model->config);
  }
  StepDescription step = {
      .model = model,
      .step = {},
      .attention = *variant,
      .attention_reason = response.attention_reason(),
      .profile = response.profile(),
      .weight_bytes = {response.weight_bytes().begin(), response.weight_bytes().end()},
      .seconds = {response.op_seconds().begin(), response.op_seconds().end()}};
  SLUICE_ASSIGN_OR_RETURN(
      step.step,
      CompleteStep(model->config, {response.sequences(), response.tokens(), response.context()}));
  const size_t ops = model->graph.ops.size();
  const auto is_number = [](double value) { return std::isfinite(value) && value >= 0; };
  if (step.weight_bytes.size() != ops || !std::ranges::all_of(step.weight_bytes, is_number) ||
      (!step.seconds.empty() && step.seconds.size() != ops) ||
      !std::ranges::all_of(step.seconds, is_number)) {
    return absl::InvalidArgumentError("weight_bytes or op_seconds do not match the model's graph");
  }
  return step;
}

void Print(const CascadeReport& report, const PlanArguments& plan, const Console& console) {
  const std::string text = CascadeReportText(report);
  *console.out << (plan.json ? text + "\n" : PlanText(json::parse(text)));
}

// Returns the sizes of all symbols of the cascade: the sizes in `text`, or a default for each if
// the text is empty. Returns InvalidArgument, with its name, for a symbol without a size or a size
// without a symbol.
absl::StatusOr<einsum::Sizes> SizesFor(const einsum::Cascade& cascade, const std::string& text) {
  std::set<std::string> symbols;
  for (const einsum::Rank& rank : cascade.ranks) {
    if (!rank.size.symbol.empty()) symbols.insert(rank.size.symbol);
  }
  einsum::Sizes sizes;
  if (text.empty()) {
    for (const std::string& symbol : symbols) sizes.emplace(symbol, kDefaultSize);
    return sizes;
  }
  auto read = einsum::ParseSizes(text);
  if (!read.ok()) return FlagError("--sizes", read.status().message());
  sizes = *std::move(read);
  const std::string all =
      symbols.empty() ? "it has none" : absl::StrCat("it has ", absl::StrJoin(symbols, ", "));
  std::set<std::string> named;
  for (const auto& [name, size] : sizes) named.insert(name);
  for (const std::string& name : named) {
    if (symbols.contains(name)) continue;
    return FlagError("--sizes", absl::StrCat("the cascade has no size '", name, "'; ", all));
  }
  for (const std::string& symbol : symbols) {
    if (named.contains(symbol)) continue;
    return FlagError(
        "--sizes",
        absl::StrCat("'", symbol, "' has no size. Give the sizes of ", absl::StrJoin(symbols, ", "),
                     ", or leave the flag out for ", kDefaultSize, " each."));
  }
  return sizes;
}

// Parses an einsum string, or einsums, which have a '='.
absl::StatusOr<einsum::Cascade> ParseText(const std::string& text) {
  if (text.find('=') == std::string::npos) return einsum::ParseEinsumString(text);
  return einsum::Parse(text);
}

absl::StatusOr<einsum::Cascade> CascadeFor(const EinsumArguments& own, std::istream* in) {
  if (!own.text.empty()) return ParseText(own.text);
  if (!own.file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadText(own.file, in));
    auto cascade = einsum::Parse(text);
    if (cascade.ok()) return cascade;
    return absl::InvalidArgumentError(absl::StrCat(own.file, ": ", cascade.status().message()));
  }
  for (const einsum::PaperCascade& paper : einsum::PaperCascades()) {
    if (paper.name == own.paper) return einsum::Parse(paper.text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--paper: there is no cascade '", own.paper, "'; see sluice einsum --help"));
}

// Derives attention in one pass.
absl::StatusOr<std::string> DeriveAttention(const EinsumArguments& own, einsum::Notation notation) {
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
  if (own.derive && !own.has_source()) return DeriveAttention(own, notation);
  SLUICE_ASSIGN_OR_RETURN(const einsum::Cascade cascade, CascadeFor(own, console.in));
  SLUICE_ASSIGN_OR_RETURN(const einsum::Sizes sizes, SizesFor(cascade, own.sizes));
  if (own.derive) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, DeviceFor(own.device, 0));
    SLUICE_ASSIGN_OR_RETURN(const einsum::OptimizedCascade found,
                            einsum::OptimizeCascade(cascade, sizes, device));
    return own.json ? OptimizedJson(found, sizes).dump() + "\n"
                    : OptimizedText(found, sizes, notation);
  }
  einsum::CostedCascade costed;
  SLUICE_ASSIGN_OR_RETURN(costed.cascade, einsum::CarryConditions(cascade));
  SLUICE_ASSIGN_OR_RETURN(costed.analysis, einsum::Analyze(costed.cascade, sizes));
  SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device, DeviceFor(own.device, 0));
  costed.cost = einsum::Estimate(costed.cascade, costed.analysis, device);
  if (own.json) return CascadeJson(costed, sizes).dump() + "\n";
  return CascadeText(costed, sizes, notation);
}

int RunServedPlan(const Arguments& arguments, const Connection& connection,
                  const Console& console) {
  const PlanArguments& plan = arguments.plan;
  admin::v1::DescribeStepRequest request;
  request.set_model_name(plan.model);
  request.set_model_version(plan.model_version);
  request.set_sequences(plan.sequences);
  request.set_tokens(plan.tokens);
  request.set_context(plan.context);
  request.set_profile(plan.profile);
  // The daemon measures the ops, so the ceilings can only be measured before and after them.
  std::optional<Ceilings> ceilings;
  if (plan.profile) ceilings.emplace(plan.device, 0).Measure();
  const auto response = connection.DescribeStep(request);
  if (!response.ok()) return Fail(response.status(), arguments, console);
  if (ceilings.has_value()) ceilings->Measure();
  const absl::StatusOr<DeviceDescription> device =
      ceilings.has_value() ? ceilings->Device() : DeviceFor(plan.device, 0);
  if (!device.ok()) return UsageError(device.status(), console);
  const absl::StatusOr<StepDescription> step = ReadDescription(*response, plan.model);
  const absl::StatusOr<CascadeReport> report =
      step.ok() ? ReportOf(*step, plan, *device) : step.status();
  if (!report.ok()) {
    *console.error << "sluice: the server's description of the model cannot be read: "
                   << report.status().message() << "\n";
    return kExitFailed;
  }
  Print(*report, plan, console);
  return kExitOk;
}

}  // namespace

int RunPlan(const Arguments& arguments, const Console& console) {
  const PlanArguments& plan = arguments.plan;
  if (!plan.model.empty()) return RunConnected(RunServedPlan, arguments, console);
  if (plan.probe) {
    const auto device = DeviceFor(plan.device, plan.threads);
    if (!device.ok()) return UsageError(device.status(), console);
    *console.out << einsum::DeviceDescriptionJson(*device) << "\n";
    return kExitOk;
  }
  const auto report = ReportOfDirectory(plan, console);
  if (!report.ok()) return UsageError(report.status(), console);
  Print(*report, plan, console);
  return kExitOk;
}

int RunEinsum(const Arguments& arguments, const Console& console) {
  const auto text = Describe(arguments.einsum, console);
  if (!text.ok()) return UsageError(text.status(), console);
  *console.out << *text;
  return kExitOk;
}

}  // namespace sluice::client
