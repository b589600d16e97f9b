#include "client/command_flags.h"
#include "client/flag_values.h"
#include "engine/model/kv_type.h"
#include "engine/model/quantization.h"

namespace sluice::client {
namespace {

// Checks which flags were given together, and sets the defaults that depend on the combination.
absl::Status Check(const CLI::App& verify, VerifyArguments* own) {
  const bool against = verify.count("--against") > 0;
  if (own->profile.empty()) own->profile = against ? "auto" : "f32";
  if (against == own->text.empty()) {
    return FlagError("--text", "is required with --against, and only valid with it");
  }
  if (against == !own->golden.empty()) {
    return FlagError("--golden", "give either --golden or --against f32");
  }
  const auto quantization = EnumOf<Quantization>(own->quantization);
  if (!own->quantization.empty() && (!quantization.has_value() || !against)) {
    return FlagError("--quantization", "expected none, int8 or int4, with --against f32");
  }
  const bool quantizes = quantization.value_or(Quantization::kNone) != Quantization::kNone;
  if (own->quantize_head && !quantizes) {
    return FlagError("--quantize-head", "needs --quantization int8 or int4");
  }
  if (own->quantization_group != 0 &&
      (quantization != Quantization::kInt4 || !IsQuantizationGroup(own->quantization_group))) {
    return FlagError("--quantization-group", "expected 32, 64 or 128, with --quantization int4");
  }
  if (!own->kv_dtype.empty() && (!EnumOf<KvType>(own->kv_dtype).has_value() || !against)) {
    return FlagError("--kv-dtype", "expected f32, bf16 or int8, with --against f32");
  }
  if (!against && !own->reference.empty()) return FlagError("--reference", "needs --against f32");
  return absl::OkStatus();
}

}  // namespace

void AddVerifyCommand(Arguments* arguments, CLI::App* app) {
  VerifyArguments& own = arguments->verify;
  CLI::App* verify = AddCommand("verify",
                                "Compare a model's results with saved results of another program, "
                                "or the results of a faster precision with f32.",
                                app);
  verify->add_option("model_directory", own.model_directory, "The model directory.")->required();
  verify->add_option("--golden", own.golden,
                     Help("The .npz file with input_ids and outputs, as tools/save_golden.py "
                          "writes it."));
  AddFlag("--tolerance",
          "Largest error of a value, relative to it or to the root mean square of its output. "
          "Default: 1e-5.",
          verify, NonNegative{}, &own.tolerance);
  verify->add_option(
      "--profile", own.profile,
      Help("Numerics profile, as in cpu.profile. Default: f32 with --golden, else auto."));
  AddFlag("--against",
          "f32: compare the profile, the quantization and the type of KV pages with f32 on --text.",
          verify, [](const std::string& text) {
            return text == "f32" ? absl::OkStatus() : FlagError("--against", "expected f32");
          });
  verify->add_option("--text", own.text,
                     Help("File with one text per line; for a model without a tokenizer, with "
                          "token ids; for a classifier of pairs, with a tab between two texts."));
  verify->add_option(
      "--quantization", own.quantization,
      Help("As for a served model: none, int8 or int4. Default: as in config.json."));
  verify->add_flag("--quantize-head", own.quantize_head,
                   Help("Also quantise the head; needs --quantization int8 or int4."));
  verify->add_option("--quantization-group", own.quantization_group,
                     Help("Rows of a group, with --quantization int4: 32, 64 or 128. Default: "
                          "64."));
  verify->add_option("--kv-dtype", own.kv_dtype,
                     Help("The type of KV pages, as for a served model: f32, bf16 or int8. "
                          "Default: as in config.json."));
  verify->add_option(
      "--reference", own.reference,
      Help("With --against f32, the directory of the model to compute in f32, such as the original "
           "of a model made with sluice quantize. Default: the model."));
  verify->add_flag("--json", own.json, "Print JSON.");
  verify->callback([=, &own] {
    arguments->command = Arguments::Command::kVerify;
    EndParseOn(Check(*verify, &own));
  });
}

}  // namespace sluice::client
