#include "client/plan_flags.h"

#include "base/status_macros.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

constexpr char kDeviceHelp[] =
    "cpu: the processor of this machine, measured now; otherwise a file that describes a device, "
    "as printed by --probe. For a server on another machine, use a file written there. Default: "
    "cpu.";

void AddPlanFlags(PlanFlags* flags, CLI::App* app) {
  CLI::App* plan = AddCommand(
      "plan", "Show the work of a model's step and the fastest order of attention.", app);
  PlanArguments& own = flags->plan;
  plan->add_option("model_directory", own.model_directory,
                   Help("The model directory; without --profile its config.json is enough."));
  plan->add_option("--model", own.model,
                   Help("A model of the daemon (--admin), instead of a directory."));
  plan->add_option("--model-version", own.model_version, "Its version. Default: the highest.");
  plan->add_option("--device", own.device, Help(kDeviceHelp));
  plan->add_option("--context", flags->context,
                   Help("Tokens of each sequence up to the end of the step. Default: 4096, or the "
                        "model's longest sequence."));
  plan->add_option("--sequences", flags->sequences, "Sequences of the step. Default: 1.");
  plan->add_option("--tokens", flags->tokens,
                   Help("Tokens that the step computes for each sequence. Default: 1, a decode "
                        "step; the whole context if attention is bidirectional."));
  plan->add_option("--threads", flags->threads, "Compute threads; 0: all. Default: 0.");
  plan->add_option("--variant", flags->variant,
                   Help("The order of attention, as in engine.attention.variant. Default: auto."));
  plan->add_flag(
      "--profile", own.profile,
      Help(
          "Run such a step for a second and show the time, the bytes and the share of the roofline "
          "of each op: on this machine, in turns with the measurement of its peak rates, or with "
          "--model in the daemon, alongside its traffic."));
  plan->add_flag("--probe", own.probe, "Print the description of this processor, and exit.");
  plan->add_flag("--json", own.json, "Print JSON.");
}

void AddEinsumFlags(EinsumArguments* own, CLI::App* app) {
  CLI::App* einsum = AddCommand(
      "einsum", "Analyse an einsum or a cascade of einsums: roles, passes, bytes, cost.", app);
  einsum->add_option(
      "text", own->text,
      Help("An einsum string, such as 'bld,lde->ble', or einsums in the notation of FuseMax, such "
           "as 'Z_{m,n} = A_{k,m} × B_{k,n}'."));
  einsum->add_option(
      "--sizes", own->sizes,
      Help("The sizes of all letters, or of all symbols of a cascade: b=8,l=256. Default: 64 for "
           "each."));
  einsum->add_option("--file", own->file,
                     Help("A cascade in the notation of docs/cascades.md; - reads standard "
                          "input."));
  einsum->add_option("--paper", own->paper,
                     Help("One of attention_three_pass, attention_deferred_division, "
                          "attention_two_pass, attention_one_pass."));
  einsum->add_flag("--derive", own->derive,
                   Help("Show how rewrites lead from attention in three passes to one pass. With "
                        "an einsum, --file or --paper: rewrite its einsums, and print the cheapest "
                        "equal cascade."));
  einsum->add_option("--device", own->device, Help(kDeviceHelp));
  einsum->add_flag("--unicode", own->unicode, "Print cascades with mathematical symbols.");
  einsum->add_flag("--json", own->json, "Print JSON.");
}

absl::Status ReadPlan(const PlanFlags& flags, PlanArguments* plan) {
  *plan = flags.plan;
  const auto read = [](const char* flag, const std::string& text, int64_t least, int64_t most,
                       auto* value) {
    return text.empty() ? absl::OkStatus() : ReadFlag(flag, Integer{least, most}, text, value);
  };
  SLUICE_RETURN_IF_ERROR(read("--context", flags.context, 1, 1 << 20, &plan->context));
  SLUICE_RETURN_IF_ERROR(read("--sequences", flags.sequences, 1, 65536, &plan->sequences));
  SLUICE_RETURN_IF_ERROR(read("--tokens", flags.tokens, 1, 1 << 20, &plan->tokens));
  SLUICE_RETURN_IF_ERROR(read("--threads", flags.threads, 0, 1024, &plan->threads));
  if (!flags.variant.empty()) {
    SLUICE_RETURN_IF_ERROR(
        ReadFlag("--variant", AttentionVariantWord{}, flags.variant, &plan->variant));
  }
  const int sources = (plan->model.empty() ? 0 : 1) + (plan->model_directory.empty() ? 0 : 1);
  if (plan->probe ? sources > 0 : sources != 1) {
    return absl::InvalidArgumentError(
        "plan needs exactly one of a model directory, --model NAME of a server, and --probe");
  }
  if (!plan->model.empty()) {
    for (const auto& [flag, given] : {std::pair("--variant", !flags.variant.empty()),
                                      std::pair("--threads", !flags.threads.empty())}) {
      if (given) return FlagError(flag, "cannot be set with --model: the daemon sets it");
    }
  }
  if (plan->profile && plan->probe) {
    return FlagError("--profile", "needs a model and cannot be used with --probe");
  }
  return absl::OkStatus();
}

absl::Status ReadEinsum(const EinsumArguments& einsum) {
  const int sources = (einsum.text.empty() ? 0 : 1) + (einsum.file.empty() ? 0 : 1) +
                      (einsum.paper.empty() ? 0 : 1);
  if (sources == 1 || (sources == 0 && einsum.derive)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "einsum needs exactly one of an einsum string, --file and --paper; only --derive needs none");
}

}  // namespace

void AddPlanCommands(PlanFlags* flags, CLI::App* app) {
  AddPlanFlags(flags, app);
  AddEinsumFlags(&flags->einsum, app);
}

absl::Status ReadPlanCommand(const PlanFlags& flags, const CLI::App& command,
                             Arguments* arguments) {
  if (command.get_name() == "plan") {
    arguments->command = Arguments::Command::kPlan;
    return ReadPlan(flags, &arguments->plan);
  }
  if (command.get_name() != "einsum") return absl::OkStatus();
  arguments->command = Arguments::Command::kEinsum;
  arguments->einsum = flags.einsum;
  return ReadEinsum(flags.einsum);
}

}  // namespace sluice::client
