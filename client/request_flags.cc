#include "client/request_flags.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/flag_values.h"
#include "client/request.h"

namespace sluice::client {
namespace {

constexpr char kInferFooter[] =
    "A line of FILE is a JSON object with \"text\", \"ids\" or \"inputs_embeds\" and, optionally,\n"
    "\"text_pair\", \"candidate_ids\", \"exclude_ids\", \"id\", \"model\", \"version\", "
    "\"outputs\" and the\n"
    "parameters that are flags, with _ for -: \"max_tokens\". Flags\n"
    "stand for what a line leaves out. \"stop\" is a string or a list, ids are lists, "
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
constexpr Integer kConcurrency{1, 1024};

void AddRequest(RequestFlags* flags, CLI::App* command) {
  command->add_option("--text", flags->text,
                      Help("The prompt, for models with a tokenizer; - for standard input."));
  command->add_option("--text-pair", flags->pair,
                      Help("A second text beside --text, for models of pairs."));
  command->add_option("--ids", flags->ids, "The prompt as token ids: 1,2,3.");
  command->add_option("--inputs-embeds", flags->vectors,
                      Help("The prompt as vectors, where the model takes such: a JSON list of "
                           "lists of numbers."));
  command->add_option("--candidate-ids", flags->candidates,
                      Help("Tokens whose scores as the next one are wanted: 1,2,3."));
  command->add_option("--exclude-ids", flags->excluded,
                      Help("Tokens that are neither drawn nor among the candidates: 1,2,3."));
  command->add_option("--model", flags->model,
                      Help("The model; may be left out when the server has only one."));
  command->add_option("--model-version", flags->model_version, "Default: the highest.");
  command->add_option("--id", flags->id, Help("A name for the request in logs; returned."));
  AddParameterFlags({}, &flags->parameters, command);
  command->add_option(
      "--outputs", flags->outputs,
      Help("The outputs wanted, with commas between, instead of the default ones: "
           "output_ids, sequence_length, logprobs, finish_reason, text_output, scores, label, "
           "embedding, "
           "top_ids, top_logprobs, top_scores, candidate_scores, logits, prompt_logprobs, "
           "xsa_cos_sim, xsa_proj_frac."));
}

absl::Status SetIdFlag(const char* flag, const char* name, const std::optional<std::string>& text,
                       inference::ModelInferRequest* request) {
  if (!text.has_value()) return absl::OkStatus();
  absl::StatusOr<std::vector<int32_t>> ids = ParseIds(*text);
  if (!ids.ok()) return FlagError(flag, ids.status().message());
  SetItems(name, *ids, request);
  return absl::OkStatus();
}

absl::Status SetItemLists(const RequestFlags& flags, inference::ModelInferRequest* request) {
  SLUICE_RETURN_IF_ERROR(SetIdFlag("--candidate-ids", "candidate_ids", flags.candidates, request));
  return SetIdFlag("--exclude-ids", "exclude_ids", flags.excluded, request);
}

absl::Status SetPrompt(const RequestFlags& flags, RequestArguments* arguments) {
  if (flags.text == "-") {
    arguments->text_from_input = true;
  } else if (flags.text.has_value()) {
    SetText(*flags.text, &arguments->request);
  }
  if (flags.pair.has_value()) SetTexts("text_pair_input", {*flags.pair}, &arguments->request);
  if (flags.vectors.has_value()) {
    absl::Status status = SetVectors(*flags.vectors, &arguments->request);
    if (!status.ok()) return FlagError("--inputs-embeds", status.message());
  }
  if (!flags.ids.has_value()) return absl::OkStatus();
  absl::StatusOr<std::vector<int32_t>> ids = ParseIds(*flags.ids);
  if (!ids.ok()) return FlagError("--ids", ids.status().message());
  SetIds(*ids, &arguments->request);
  return absl::OkStatus();
}

absl::Status ReadRequest(const RequestFlags& flags, RequestArguments* arguments) {
  SLUICE_RETURN_IF_ERROR(SetPrompt(flags, arguments));
  inference::ModelInferRequest* request = &arguments->request;
  SLUICE_RETURN_IF_ERROR(SetItemLists(flags, request));
  request->set_model_name(flags.model);
  request->set_model_version(flags.model_version);
  request->set_id(flags.id);
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(flags.outputs, ',', absl::SkipEmpty()))) {
    AddOutput(name, request);
  }
  return SetParameters(flags.parameters, request);
}

int PromptFlags(const RequestFlags& flags) {
  return flags.text.has_value() + flags.ids.has_value() + flags.vectors.has_value();
}

absl::Status ReadInfer(const RequestFlags& flags, InferArguments* infer) {
  if (PromptFlags(flags) + !flags.file.empty() != 1) {
    return absl::InvalidArgumentError(
        "infer needs exactly one of --text, --ids, --inputs-embeds and --file");
  }
  infer->file = flags.file;
  infer->json = flags.json;
  SLUICE_RETURN_IF_ERROR(ReadRequest(flags, infer));
  return ReadFlag("--concurrency", kConcurrency, flags.concurrency, &infer->concurrency);
}

// Returns the flags with the text that has no flag moved to --text. Returns InvalidArgument if both
// are given.
absl::StatusOr<RequestFlags> WithPromptAsText(RequestFlags flags) {
  if (!flags.prompt.has_value()) return flags;
  if (flags.text.has_value()) {
    return absl::InvalidArgumentError(
        "generate: the prompt is given twice, as an argument and by --text");
  }
  flags.text = std::move(flags.prompt);
  return flags;
}

absl::Status ReadGenerate(const RequestFlags& flags, GenerateArguments* generate) {
  if (PromptFlags(flags) != 1) {
    return absl::InvalidArgumentError(
        "generate needs exactly one of a prompt (PROMPT or --text), --ids and --inputs-embeds");
  }
  if (!flags.outputs.empty() && !flags.json) {
    return FlagError("--outputs", "shown only by --json");
  }
  generate->json = flags.json;
  generate->verbose = flags.verbose;
  SLUICE_RETURN_IF_ERROR(ReadRequest(flags, generate));
  auto* parameters = generate->request.mutable_parameters();
  if (!parameters->contains("max_tokens")) {
    (*parameters)["max_tokens"].set_int64_param(kGenerateTokens);
  }
  return absl::OkStatus();
}

}  // namespace

void AddRequestCommands(RequestFlags* flags, CLI::App* app) {
  CLI::App* infer = AddCommand("infer", "Run one request, or many from a file.", app);
  infer->footer(kInferFooter);
  AddRequest(flags, infer);
  infer->add_option("--file", flags->file, Help("Requests as JSON lines; - for standard input."));
  infer->add_option("--concurrency", flags->concurrency,
                    Help("With --file: most requests at a time. Default 8."));
  infer->add_flag("--json", flags->json, "Print the whole answer as a JSON line.");

  CLI::App* generate = AddCommand("generate", "Show an answer while it is generated.", app);
  generate->footer(kGenerateFooter);
  generate->add_option("PROMPT", flags->prompt,
                       Help("The prompt, as by --text. One that begins with - goes after --."));
  AddRequest(flags, generate);
  generate->add_flag("--json", flags->json, "Print each response as a JSON line.");
  generate->add_flag("--verbose", flags->verbose,
                     Help("Print the summary even where standard error is no terminal."));
}

absl::Status ReadRequestCommand(const RequestFlags& flags, const CLI::App& command,
                                Arguments* arguments) {
  if (command.get_name() == "infer") {
    arguments->command = Arguments::Command::kInfer;
    return ReadInfer(flags, &arguments->infer);
  }
  if (command.get_name() == "generate") {
    arguments->command = Arguments::Command::kGenerate;
    SLUICE_ASSIGN_OR_RETURN(const RequestFlags prompted, WithPromptAsText(flags));
    return ReadGenerate(prompted, &arguments->generate);
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
