#include "client/verify_flags.h"

#include "absl/strings/numbers.h"
#include "client/flag_values.h"
#include "engine/model/kv_type.h"
#include "engine/model/quantization.h"

namespace sluice::client {

void AddVerifyCommand(VerifyFlags* flags, CLI::App* app) {
  CLI::App* verify =
      AddCommand("verify",
                 "Compare what a model computes with what was saved elsewhere, or what it computes "
                 "in a faster precision with f32.",
                 app);
  verify->add_option("model_directory", flags->model_directory, "The model, as it is served.")
      ->required();
  verify->add_option("--golden", flags->golden,
                     Help("The .npz file with input_ids and outputs, as tools/save_golden.py "
                          "writes it."));
  verify->add_option("--tolerance", flags->tolerance,
                     Help("Largest error of a value, relative to it or to the root mean square of "
                          "its output. Default: 1e-5."));
  verify->add_option("--profile", flags->profile,
                     Help("Numerics profile, as cpu.profile. Default: f32 with --golden, else "
                          "auto."));
  verify->add_option("--against", flags->against,
                     Help("f32: compare the profile, the quantization and the type of KV "
                          "pages with f32 on --text."));
  verify->add_option("--text", flags->text,
                     Help("File with a text in each line; of a model without a tokenizer, with "
                          "token ids; of a classifier of pairs, with a tab between two texts."));
  verify->add_option(
      "--quantization", flags->quantization,
      Help("As of a served model: none, int8 or int4. Default: as config.json says."));
  verify->add_flag("--quantize-head", flags->quantize_head,
                   Help("Quantise the head too, with --quantization int8 or int4."));
  verify->add_option("--quantization-group", flags->quantization_group,
                     Help("Rows of a group, with --quantization int4: 32, 64 or 128. Default: "
                          "64."));
  verify->add_option("--kv-dtype", flags->kv_dtype,
                     Help("The type of KV pages, as of a served model: f32, bf16 or int8. Default: "
                          "as config.json says."));
  verify->add_option("--reference", flags->reference,
                     Help("With --against f32, the directory of the model to compute in f32, such "
                          "as that from which sluice quantize made this one. Default: the model."));
}

absl::Status ReadVerifyCommand(const VerifyFlags& flags, const CLI::App& command,
                               Arguments* arguments) {
  if (command.get_name() != "verify") return absl::OkStatus();
  arguments->command = Arguments::Command::kVerify;
  const bool against = !flags.against.empty();
  VerifyArguments& verify = arguments->verify;
  verify = {.model_directory = flags.model_directory,
            .golden = flags.golden,
            .tolerance = 0,
            .profile = !flags.profile.empty() ? flags.profile
                       : against              ? "auto"
                                              : "f32",
            .text = flags.text,
            .quantization = flags.quantization,
            .quantize_head = flags.quantize_head,
            .quantization_group = flags.quantization_group,
            .kv_dtype = flags.kv_dtype,
            .reference = flags.reference};
  if (against && flags.against != "f32") return FlagError("--against", "expected f32");
  if (against == flags.text.empty())
    return FlagError("--text", "is needed with --against, and no other");
  if (against == !flags.golden.empty()) {
    return FlagError("--golden", "expected either it or --against f32");
  }
  const auto quantization = EnumOf<Quantization>(verify.quantization);
  if (!verify.quantization.empty() && (!quantization.has_value() || !against)) {
    return FlagError("--quantization", "expected none, int8 or int4, with --against f32");
  }
  const bool quantizes = quantization.value_or(Quantization::kNone) != Quantization::kNone;
  if (verify.quantize_head && !quantizes) {
    return FlagError("--quantize-head", "needs --quantization int8 or int4");
  }
  if (verify.quantization_group != 0 &&
      (quantization != Quantization::kInt4 || !IsQuantizationGroup(verify.quantization_group))) {
    return FlagError("--quantization-group", "expected 32, 64 or 128, with --quantization int4");
  }
  if (!verify.kv_dtype.empty() && (!EnumOf<KvType>(verify.kv_dtype).has_value() || !against)) {
    return FlagError("--kv-dtype", "expected f32, bf16 or int8, with --against f32");
  }
  if (!against && !verify.reference.empty()) {
    return FlagError("--reference", "needs --against f32");
  }
  if (absl::SimpleAtod(flags.tolerance, &verify.tolerance) && verify.tolerance >= 0) {
    return absl::OkStatus();
  }
  return FlagError("--tolerance", "expected a number of 0 or more");
}

}  // namespace sluice::client
