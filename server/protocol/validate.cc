#include "server/protocol/validate.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/common/status.h"
#include "server/protocol/inputs.h"
#include "server/protocol/item_lists.h"
#include "server/protocol/parameter_value.h"
#include "server/protocol/parameters.h"
#include "server/protocol/prompt.h"

namespace sluice {
namespace {

absl::Status OutputError(absl::string_view name, absl::string_view problem) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat("output ", Printable(name), " ", problem)), "output");
}

std::string NamesOf(const Model& model) {
  std::string names;
  for (const OutputInfo& info : Outputs()) {
    if (!Has(model, info)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    absl::string_view(info.name.data(), info.name.size()));
  }
  return names;
}

// What a request gives beside its prompt that outputs depend on.
struct Given {
  bool top = false;         // num_top_logprobs
  bool candidates = false;  // candidate_ids
};

bool IsTop(const OutputInfo& info) { return (info.mask & kOutputTopCandidates) != 0; }

absl::Status CheckNeeds(const OutputInfo& info, absl::string_view name, const Given& given) {
  if (IsTop(info) && !given.top) return OutputError(name, "needs the parameter num_top_logprobs");
  if (info.output == Output::kCandidateScores && !given.candidates) {
    return OutputError(name, "needs the input candidate_ids");
  }
  return absl::OkStatus();
}

// Where none is named.
void AddDefaults(const Given& given, ReplySpec* reply) {
  const Model& model = *reply->model;
  for (const OutputInfo& info : Outputs()) {
    const bool top = given.top && IsTop(info) && info.output != Output::kTopScores;
    const bool candidates = given.candidates && info.output == Output::kCandidateScores;
    if (IsDefaultOf(info, model) || (Has(model, info) && (top || candidates))) {
      reply->outputs.push_back(info.output);
    }
  }
}

absl::Status ReadOutputs(const inference::ModelInferRequest& message, const Given& given,
                         ReplySpec* reply) {
  for (const auto& requested : message.outputs()) {
    const OutputInfo* info = FindOutput(requested.name(), *reply->model);
    if (info == nullptr) {
      return OutputError(requested.name(), absl::StrCat("is unknown to this model, which has ",
                                                        NamesOf(*reply->model)));
    }
    if (!requested.parameters().empty()) {
      return OutputError(requested.name(), "takes no parameters");
    }
    if (std::count(reply->outputs.begin(), reply->outputs.end(), info->output) != 0) {
      return OutputError(requested.name(), "appears twice");
    }
    absl::Status status = CheckNeeds(*info, requested.name(), given);
    if (!status.ok()) return status;
    reply->outputs.push_back(info->output);
  }
  if (message.outputs().empty()) AddDefaults(given, reply);
  const bool scored =
      std::count(reply->outputs.begin(), reply->outputs.end(), Output::kCandidateScores) != 0;
  if (given.candidates && !scored) {
    return InputError("candidate_ids",
                      "belongs to the output candidate_scores, which is not wanted");
  }
  return absl::OkStatus();
}

uint32_t MaskOf(const std::vector<Output>& outputs) {
  uint32_t mask = 0;
  for (const Output output : outputs) mask |= InfoOf(output).mask;
  return mask;
}

// Upper bound of an output's bytes, in floating point: its factors may overflow integers.
double OutputBytes(Output output, const ValidRequest& valid, double longest) {
  const ModelConfig& config = valid.request.model->config;
  const double rows = valid.request.rows();
  const double generated = valid.request.max_tokens;
  switch (output) {
    case Output::kOutputIds:
    case Output::kLogprobs:
      return 4 * rows * generated;
    case Output::kSequenceLength:
      return 4 * rows;
    case Output::kFinishReason:
      return 16 * rows;
    case Output::kTextOutput:
      return rows * (4 + 4 * generated);
    case Output::kTopIds:
    case Output::kTopLogprobs:
    case Output::kTopScores:
      return 4 * rows * generated * static_cast<double>(valid.reply.num_top);
    case Output::kLogits:
      return 4 * rows * static_cast<double>(config.vocab_size);
    case Output::kPromptLogprobs:
      return 4 * rows * longest;
    case Output::kEmbedding:
      return 4 * rows * static_cast<double>(config.hidden_size);
    case Output::kScores:
      return 4 * rows * static_cast<double>(config.serving.classifier.labels);
    case Output::kCandidateScores:
      return 4 * static_cast<double>(valid.request.candidates.tokens.size());
    case Output::kXsaCosSim:
    case Output::kXsaProjFrac:
      return 4 * rows * longest * static_cast<double>(config.layers) *
             static_cast<double>(config.heads);
  }
  return 0;
}

int32_t Longest(const std::vector<int32_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

absl::Status CheckReplySize(const RequestLimits& limits, ValidRequest* valid) {
  // Beside the tensors: model name, id and parameters, and of each output name, type and shape.
  constexpr double kHead = 1024, kOutputHead = 256;
  double bytes = kHead;
  for (Output output : valid->reply.outputs) {
    bytes += kOutputHead + OutputBytes(output, *valid, Longest(valid->request.lengths));
  }
  if (bytes <= static_cast<double>(limits.max_reply_bytes)) {
    valid->reply.most_bytes = static_cast<int64_t>(bytes);
    return absl::OkStatus();
  }
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "the reply may need ", bytes, " bytes; the limit is ", limits.max_reply_bytes,
          " (max_message_bytes): ask for fewer rows, tokens ", "or outputs")),
      "request");
}

absl::Status CheckStop(const Parameters& parameters, const Model& model) {
  if (parameters.stop.texts.empty() || model.tokenizer != nullptr) return absl::OkStatus();
  return ParameterError("stop", "the model has no tokenizer; use stop_token_ids");
}

// Where a row has more tokens to come than one, these must be computed as the prompt's were.
absl::Status CheckMoreTokens(const Model& model, const Prompt& prompt, int64_t max_tokens) {
  if (max_tokens <= 1) return absl::OkStatus();
  if (model.config.serving.alignment == PositionAlignment::kEnd) {
    return ParameterError("max_tokens", absl::StrCat("is ", max_tokens,
                                                     "; the model's windows end at its last "
                                                     "position, so that it generates 1 at most"));
  }
  if (prompt.embeds() && !model.config.embeds_ids()) {
    return ParameterError("max_tokens",
                          absl::StrCat("is ", max_tokens,
                                       "; the model takes vectors only, so that "
                                       "it cannot go on with tokens and generates 1 at most"));
  }
  return absl::OkStatus();
}

absl::Status CheckGenerates(const Model& model, int64_t max_tokens) {
  if (max_tokens == 0 || model.generates()) return absl::OkStatus();
  const absl::string_view why =
      model.config.has_lm_head ? "its attention runs in both directions" : "it has no head";
  return ParameterError("max_tokens",
                        absl::StrCat("is ", max_tokens, "; the model generates no tokens: ", why));
}

// Settles how many tokens a row may generate, and how long rows are.
absl::Status CheckRoom(const Parameters& parameters, const Model& model, Prompt* prompt,
                       ValidRequest* valid) {
  const uint32_t outputs = MaskOf(valid->reply.outputs);
  const int64_t max_tokens = parameters.max_tokens.value_or((outputs & kOutputTokens) != 0 ? 1 : 0);
  absl::Status status = CheckGenerates(model, max_tokens);
  if (status.ok()) status = CheckMoreTokens(model, *prompt, max_tokens);
  if (status.ok() && prompt->embeds() && (outputs & kOutputPromptLogprobs) != 0) {
    status = OutputError("prompt_logprobs", "is of token ids; inputs_embeds have none");
  }
  if (!status.ok()) return status;
  valid->request.max_tokens = valid->reply.max_tokens = static_cast<int32_t>(max_tokens);
  const int64_t positions = model.config.max_positions;
  const int64_t limit = positions + 1;
  const bool cuts = parameters.truncate != Truncation::kError;
  // The last token is drawn at the last position, and is not computed any more.
  status =
      prompt->Cut(parameters.truncate,
                  cuts ? std::min(positions, std::max<int64_t>(limit - max_tokens, 1)) : positions);
  if (!status.ok()) return status;
  const int32_t longest = Longest(prompt->lengths());
  if (longest + max_tokens <= limit) return absl::OkStatus();
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "parameter max_tokens is ", max_tokens, " and the longest row has ", longest,
          " tokens; together they may be at most ", limit, " (the model's max_positions + 1)")),
      "parameter");
}

void ApplyGeneration(Parameters&& parameters, ValidRequest* valid) {
  valid->reply.stop_texts = parameters.stop.texts;
  valid->reply.min_tokens = parameters.stop.min_tokens;
  valid->reply.empty_final_response = parameters.empty_final_response;
  valid->request.edits = std::move(parameters.edits);
  valid->request.stop = std::move(parameters.stop);
  // Where no output is of tokens there may be none, whatever their parameters say.
  valid->request.stop.min_tokens =
      std::min(valid->request.stop.min_tokens, valid->request.max_tokens);
}

void Apply(const Parameters& parameters, const CallFacts& arrival, ValidRequest* valid) {
  Request& request = valid->request;
  request.sampling.temperature = static_cast<float>(parameters.temperature);
  request.sampling.top_k = static_cast<int32_t>(parameters.top_k);
  request.sampling.top_p = static_cast<float>(parameters.top_p);
  request.sampling.min_p = static_cast<float>(parameters.min_p);
  if (parameters.seed) {
    request.sampling.seed = *parameters.seed;
  } else if (parameters.temperature > 0) {
    request.sampling.seed = static_cast<uint64_t>(arrival.fresh_seed);
    valid->reply.drawn_seed = arrival.fresh_seed;
  }
  if (parameters.priority != 0) request.priority = static_cast<int>(parameters.priority);
  request.deadline = arrival.rpc_deadline;
  if (parameters.timeout_us != 0) {
    request.deadline = std::min(
        request.deadline, arrival.received + std::chrono::microseconds(parameters.timeout_us));
  }
  request.trace = arrival.trace;
  request.states = parameters.states;
}

// What the size of the reply depends on.
absl::Status ApplyOutputs(const Parameters& parameters, const InputTensors& inputs,
                          const Prompt& prompt, ValidRequest* valid) {
  Request& request = valid->request;
  request.outputs = MaskOf(valid->reply.outputs);
  if ((request.outputs & kOutputTopCandidates) != 0) {
    request.num_top = static_cast<int32_t>(parameters.num_top_logprobs);
    valid->reply.num_top = request.num_top;
  }
  request.lengths = prompt.lengths();
  valid->reply.lengths = request.lengths;
  valid->reply.cut_tokens = prompt.cut_tokens();
  return ReadItemLists(inputs, prompt.rows(), parameters, &request);
}

absl::Status CheckId(const std::string& id) {
  if (id.size() <= kMaxRequestIdBytes) return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        "id has ", id.size(), " bytes; the limit is ", kMaxRequestIdBytes)),
                    "request");
}

}  // namespace

absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      std::shared_ptr<const Model> model,
                                      const RequestLimits& limits, const CallFacts& arrival) {
  if (absl::Status status = CheckId(message.id()); !status.ok()) return status;
  ValidRequest valid;
  Request& request = valid.request;
  valid.reply.model = request.model = std::move(model);
  valid.reply.id = request.id = message.id();
  const Model& served = *request.model;

  absl::StatusOr<InputTensors> inputs = ReadInputs(message, served);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<Prompt> prompt = Prompt::Read(*inputs, served, limits.max_rows);
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<Parameters> parameters = ReadParameters(message.parameters(), served.config);
  if (!parameters.ok()) return parameters.status();
  const Given given{.top = parameters->num_top_logprobs > 0,
                    .candidates = inputs->has(Input::kCandidateIds)};
  absl::Status status = ReadOutputs(message, given, &valid.reply);
  if (status.ok()) status = prompt->Encode(served);
  if (status.ok()) status = CheckStop(*parameters, served);
  if (status.ok()) status = CheckRoom(*parameters, served, &*prompt, &valid);
  if (status.ok()) status = ApplyOutputs(*parameters, *inputs, *prompt, &valid);
  if (status.ok()) status = CheckReplySize(limits, &valid);
  if (status.ok()) status = prompt->Copy(&request);
  if (!status.ok()) return status;
  Apply(*parameters, arrival, &valid);
  ApplyGeneration(*std::move(parameters), &valid);
  return valid;
}

}  // namespace sluice
