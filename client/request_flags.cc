#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/command_flags.h"
#include "client/flag_values.h"
#include "client/parameter.h"
#include "client/request.h"

namespace sluice::client {
namespace {

using inference::ModelInferRequest;

constexpr char kInferFooter[] =
    "A line of FILE is a JSON object with \"text\", \"ids\" or \"inputs_embeds\" and, optionally,\n"
    "\"text_pair\", \"candidate_ids\", \"exclude_ids\", \"id\", \"model\", \"version\", "
    "\"outputs\" and the\n"
    "request parameters, written with _ for -: \"max_tokens\". Flags\n"
    "are the defaults for missing keys. \"stop\" is a string or a list, ids are lists, "
    "\"logit_bias\"\n"
    "is {\"ID\": BIAS} with null for a ban. The results are JSON lines in the order of the input, "
    "a\n"
    "summary goes to standard error.\n"
    "\n"
    "Example: sluice infer --text \"Once upon a time\" --max-tokens 64 --temperature 0.8";
constexpr char kGenerateFooter[] =
    "Without --max-tokens at most 64 tokens. Ctrl-C cancels; a second one ends at once. The "
    "summary\n"
    "goes to standard error: tokens, tokens per second, time to the first token, and why it "
    "ended.\n"
    "\n"
    "Example: sluice generate \"Once upon a time\" --max-tokens 200 --temperature 0.8";
constexpr int64_t kGenerateTokens = 64;

// Adds a flag of token ids and passes them to `set`.
void AddIds(const char* flag, const char* help, CLI::App* command,
            std::function<void(const std::vector<int32_t>&)> set) {
  AddFlag(flag, help, command, [=](const std::string& text) {
    const absl::StatusOr<std::vector<int32_t>> ids = ParseIds(text);
    if (!ids.ok()) return FlagError(flag, ids.status().message());
    set(*ids);
    return absl::OkStatus();
  });
}

void SetPrompt(const std::string& text, RequestArguments* arguments) {
  arguments->text_from_input = text == "-";
  if (!arguments->text_from_input) SetText(text, &arguments->request);
}

void AddRequest(RequestArguments* arguments, CLI::App* command) {
  ModelInferRequest* const request = &arguments->request;
  command->add_option_function<std::string>(
      "--text", [=](const std::string& text) { SetPrompt(text, arguments); },
      Help("The prompt, for models with a tokenizer; - for standard input."));
  command->add_option_function<std::string>(
      "--text-pair", [=](const std::string& text) { SetTexts("text_pair_input", {text}, request); },
      Help("A second text, for models that take pairs."));
  AddIds("--ids", "The prompt as token ids: 1,2,3.", command,
         [=](const std::vector<int32_t>& ids) { SetIds(ids, request); });
  AddFlag("--inputs-embeds",
          "The prompt as vectors, if the model takes them: a JSON list of lists of numbers.",
          command, [=](const std::string& text) {
            const absl::Status status = SetVectors(text, request);
            return status.ok() ? status : FlagError("--inputs-embeds", status.message());
          });
  AddIds("--candidate-ids", "Tokens to score as the next token: 1,2,3.", command,
         [=](const std::vector<int32_t>& ids) { SetItems("candidate_ids", ids, request); });
  AddIds("--exclude-ids", "Tokens to exclude from sampling and from the candidates: 1,2,3.",
         command, [=](const std::vector<int32_t>& ids) { SetItems("exclude_ids", ids, request); });
  AddModelFlags(request, command);
  command->add_option_function<std::string>(
      "--id", [=](const std::string& id) { request->set_id(id); },
      Help("An id for the request; it appears in logs and in the response."));
  AddParameterFlags({}, request, command);
  command->add_option_function<std::string>(
      "--outputs",
      [=](const std::string& names) {
        for (const absl::string_view name : absl::StrSplit(names, ',', absl::SkipEmpty())) {
          AddOutput(std::string(name), request);
        }
      },
      Help("Comma-separated outputs to return instead of the default ones: output_ids, "
           "sequence_length, logprobs, finish_reason, text_output, output_bytes, scores, label, "
           "embedding, top_ids, top_logprobs, top_bytes, top_scores, candidate_scores, logits, "
           "prompt_logprobs, "
           "xsa_cos_sim, xsa_proj_frac."));
}

size_t PromptFlags(const CLI::App& command) {
  return command.count("--text") + command.count("--ids") + command.count("--inputs-embeds");
}

absl::Status CheckInfer(const CLI::App& command) {
  if (PromptFlags(command) + command.count("--file") == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "infer needs exactly one of --text, --ids, --inputs-embeds and --file");
}

absl::Status CheckGenerate(const CLI::App& command, GenerateArguments* generate) {
  const size_t prompts = command.count("PROMPT");
  if (prompts > 0 && command.count("--text") > 0) {
    return absl::InvalidArgumentError(
        "generate: the prompt is given twice, as an argument and with --text");
  }
  if (prompts + PromptFlags(command) != 1) {
    return absl::InvalidArgumentError(
        "generate needs exactly one of a prompt (PROMPT or --text), --ids and --inputs-embeds");
  }
  if (generate->request.outputs_size() > 0 && !generate->json) {
    return FlagError("--outputs", "needs --json");
  }
  auto* parameters = generate->request.mutable_parameters();
  if (!parameters->contains("max_tokens")) {
    (*parameters)["max_tokens"].set_int64_param(kGenerateTokens);
  }
  return absl::OkStatus();
}

}  // namespace

void AddModelFlags(ModelInferRequest* request, CLI::App* command) {
  command->add_option_function<std::string>(
      "--model", [=](const std::string& name) { request->set_model_name(name); },
      Help("The model; may be left out if the server has only one."));
  command->add_option_function<std::string>(
      "--model-version", [=](const std::string& version) { request->set_model_version(version); },
      "Default: the highest.");
}

void AddParameterFlags(std::initializer_list<std::string_view> names, ModelInferRequest* request,
                       CLI::App* command) {
  for (const ParameterInfo* info : Parameters()) {
    const bool wanted = std::find(names.begin(), names.end(), info->name) != names.end();
    if (names.size() > 0 && !wanted) continue;
    const auto set = [=](const std::vector<std::string>& values) {
      const absl::Status status = SetParameter(*info, values, request);
      EndParseOn(status.ok() ? status : FlagError(FlagOf(*info), status.message()));
    };
    if (info->kind() == ParameterKind::kSwitch) {
      command->add_flag_callback(
          FlagOf(*info), [=] { set({"true"}); }, Help(HelpOf(*info)));
      continue;
    }
    CLI::Option* option = command->add_option_function<std::vector<std::string>>(
        FlagOf(*info), set, Help(HelpOf(*info)));
    if (info->kind() != ParameterKind::kTexts) option->expected(1);
    option->allow_extra_args(false);  // each --flag takes one value, not all the following words
  }
}

void AddRequestCommands(Arguments* arguments, CLI::App* app) {
  CLI::App* infer = AddCommand("infer", "Run one request, or many from a file.", app);
  infer->footer(kInferFooter);
  AddRequest(&arguments->infer, infer);
  infer->add_option("--file", arguments->infer.file,
                    Help("Requests as JSON lines; - for standard input."));
  AddFlag("--concurrency", "With --file: the most requests at a time. Default 8.", infer,
          Integer{1, 1024}, &arguments->infer.concurrency);
  infer->add_flag("--json", arguments->infer.json, "Print the whole answer as a JSON line.");
  infer->callback([=] {
    arguments->command = Arguments::Command::kInfer;
    EndParseOn(CheckInfer(*infer));
  });
  CLI::App* generate = AddCommand("generate", "Show an answer as it is generated.", app);
  generate->footer(kGenerateFooter);
  GenerateArguments* const own = &arguments->generate;
  generate->add_option_function<std::string>(
      "PROMPT", [=](const std::string& text) { SetPrompt(text, own); },
      Help("The prompt, as with --text. If it begins with -, put it after --."));
  AddRequest(own, generate);
  generate->add_flag("--json", own->json, "Print each response as a JSON line.");
  generate->add_flag("--verbose", own->verbose,
                     Help("Print the summary even if standard error is not a terminal."));
  generate->callback([=] {
    arguments->command = Arguments::Command::kGenerate;
    EndParseOn(CheckGenerate(*generate, own));
  });
}

}  // namespace sluice::client
