#include "server/protocol/request/validate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/model/text_stream.h"
#include "kernels/diversity.h"
#include "server/common/status.h"
#include "server/protocol/parameters/parameter_value.h"
#include "server/protocol/parameters/parameters.h"
#include "server/protocol/request/item_lists.h"
#include "server/protocol/request/reply_bound.h"
#include "server/protocol/request/requested_outputs.h"
#include "server/protocol/request/token_positions.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/text/prompt.h"
#include "server/protocol/text/text_rows.h"

namespace sluice {
namespace {

// Checks the outputs that the diversity applies to, and their size. `request` has its candidates.
absl::Status CheckDiversity(const RequestSpec& spec, const Request& request) {
  if (spec.diversity == 0) return absl::OkStatus();
  const bool top = (request.outputs & kOutputTopCandidates) != 0;
  if (!top && (request.outputs & kOutputCandidateOrder) == 0) {
    return ParameterError("diversity",
                          "requires one of the outputs top_ids, top_logprobs, top_scores or "
                          "candidate_order; none was requested");
  }
  if (top && spec.num_top > kernels::kMaxDiverse) {
    return ParameterError("num_top_logprobs",
                          absl::StrCat("is ", spec.num_top, "; with diversity the maximum is ",
                                       kernels::kMaxDiverse));
  }
  const auto candidates = std::ssize(request.candidates.Of(0));
  if (candidates > kernels::kMaxDiversePool) {
    return InputError("candidate_ids",
                      absl::StrCat("has ", candidates, " columns; with diversity the maximum is ",
                                   kernels::kMaxDiversePool));
  }
  return absl::OkStatus();
}

// Generated text has no special tokens, so a stop text that names one ends rows before the token.
absl::Status ReadStop(const Model& model, RequestSpec* spec) {
  StopRules* const stop = &spec->stop;
  if (stop->texts.empty()) return absl::OkStatus();
  if (model.tokenizer == nullptr) {
    return ParameterError("stop", "the model has no tokenizer; use stop_token_ids");
  }
  const size_t given = stop->ids.size();
  for (const std::string& text : stop->texts) {
    const int32_t id = model.tokenizer->IdOf(text);
    if (id < 0 || id >= model.config.vocab_size) continue;
    const std::vector<std::string> specials = model.tokenizer->special_texts();
    if (std::ranges::find(specials, text) != specials.end()) stop->ids.push_back(id);
  }
  if (stop->ids.size() == given) return absl::OkStatus();
  std::ranges::sort(stop->ids);
  const auto repeated = std::ranges::unique(stop->ids);
  stop->ids.erase(repeated.begin(), repeated.end());
  return CheckChoice(*spec, model.config);
}

// Reads the tokens of the predicted answer, at most as many as the answer may have.
absl::Status ReadPrediction(const Model& model, RequestSpec* spec) {
  if (spec->prediction.empty()) return absl::OkStatus();
  if (model.tokenizer == nullptr) {
    return ParameterError("prediction", "the model has no tokenizer; leave the parameter out");
  }
  auto tokens = model.tokenizer->EncodeBare(spec->prediction, spec->max_tokens);
  SLUICE_RETURN_IF_ERROR(CheckInterruption());
  if (!tokens.ok()) {
    if (IsRefusalForMemory(tokens.status())) return tokens.status();
    return ParameterError("prediction", absl::StrCat("is refused: ", tokens.status().message()));
  }
  if (std::ssize(*tokens) > spec->max_tokens) tokens->resize(spec->max_tokens);
  const auto unknown = [&](int32_t id) { return id < 0 || id >= model.config.vocab_size; };
  tokens->erase(std::ranges::find_if(*tokens, unknown), tokens->end());
  spec->predicted = *std::move(tokens);
  return absl::OkStatus();
}

// Returns an error if `max_tokens` is more than 1 but the model can generate only one token from
// this prompt. This happens if the model's windows end at its last position, or if the model takes
// only vectors and cannot continue from a generated token.
absl::Status CheckMoreTokens(const Model& model, const Prompt& prompt, int64_t max_tokens) {
  if (max_tokens <= 1) return absl::OkStatus();
  if (model.config.serving.alignment == PositionAlignment::kEnd) {
    return ParameterError(
        "max_tokens",
        absl::StrCat("is ", max_tokens,
                     "; the model's windows end at its last position, so the maximum is 1"));
  }
  if (prompt.embeds() && !model.config.embeds_ids()) {
    return ParameterError("max_tokens",
                          absl::StrCat("is ", max_tokens,
                                       "; the model takes only embeddings as input and cannot "
                                       "continue from generated tokens, so the maximum is 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckGenerates(const NamedModel& named, int64_t max_tokens) {
  if (max_tokens == 0 || named.generates()) return absl::OkStatus();
  absl::string_view why = "it has no head";
  if (named.model.config.has_lm_head) why = "its attention is bidirectional";
  if (named.has_head) why = "the adapter has a classifier in place of the head";
  return ParameterError("max_tokens",
                        absl::StrCat("is ", max_tokens, "; the model generates no tokens: ", why));
}

// Checks the number of tokens that a row may generate, and cuts rows to make room for them.
absl::Status CheckRoom(const RequestSpec& spec, const Model& model, uint32_t outputs,
                       Prompt* prompt) {
  const int64_t max_tokens = spec.max_tokens;
  SLUICE_RETURN_IF_ERROR(CheckGenerates({model, spec.head.get()}, max_tokens));
  SLUICE_RETURN_IF_ERROR(CheckMoreTokens(model, *prompt, max_tokens));
  if (prompt->embeds() && (outputs & kOutputPromptLogprobs) != 0) {
    return OutputError("prompt_logprobs", "needs token ids, but inputs_embeds has none");
  }
  const int64_t positions = model.config.max_positions;
  const int64_t limit = positions + 1;
  const bool cuts = spec.truncate != Truncation::kError;
  // The last generated token needs no position, because the model does not process it.
  SLUICE_RETURN_IF_ERROR(prompt->Cut(
      spec.truncate,
      cuts ? std::min(positions, std::max<int64_t>(limit - max_tokens, 1)) : positions));
  const int32_t longest = prompt->longest();
  if (longest + max_tokens <= limit) return absl::OkStatus();
  return ReasonError(
      Reason::kParameter,
      absl::StrCat("parameter max_tokens is ", max_tokens, " and the longest row has ", longest,
                   " tokens; together they may be at most ", limit,
                   " (the model's max_positions + 1). Lower max_tokens or shorten the row"));
}

// A priority of 0 stands for the default.
bool AsksForPriority(const inference::ModelInferRequest& message, const RequestSpec& spec) {
  return spec.priority != 0 && message.parameters().contains("priority");
}

// Replaces the values that stand for a default, once all inputs of the defaults are known.
void ApplyDefaults(const inference::ModelInferRequest& message, const CallContext& call,
                   RequestSpec* spec, ReplySpec* reply) {
  // If max_tokens is 0, for example without token outputs, min_tokens must be 0 too.
  spec->stop.min_tokens = std::min(spec->stop.min_tokens, spec->max_tokens);
  if ((MaskOf(reply->outputs) & kOutputTopCandidates) == 0) spec->num_top = 0;
  if (!AsksForPriority(message, *spec)) {
    spec->priority = std::max(kDefaultPriority, call.max_priority);
  }
  if (spec->sampling.temperature > 0 && !message.parameters().contains("seed")) {
    spec->sampling.seed = call.fresh_seed;
    reply->drawn_seed = call.fresh_seed;
  }
}

absl::Status CheckSpanUnit(const RequestSpec& spec, const Prompt& prompt) {
  if (!NeedsPlaces(spec) || prompt.takes_prompt()) return absl::OkStatus();
  return ParameterError("spans",
                        "needs text_input without text_pair_input; for other inputs set span_unit "
                        "to tokens");
}

absl::Status CheckLabels(const RequestSpec& spec, const Prompt& prompt) {
  if (spec.extraction.labels.empty()) return absl::OkStatus();
  if (!prompt.takes_prompt()) {
    return ParameterError("labels", "needs text_input without text_pair_input");
  }
  if (spec.truncate == Truncation::kLeft) {
    return ParameterError("truncate",
                          "is left, which would cut the labels; with labels it may be right or "
                          "error");
  }
  return absl::OkStatus();
}

// Leaves out the tokens of the tokenizer's template if the request asks for it.
absl::Status ApplyTemplate(const RequestSpec& spec, Prompt* prompt) {
  if (spec.add_special_tokens) return absl::OkStatus();
  if (!prompt->takes_prompt() || !spec.extraction.labels.empty()) {
    return ParameterError("add_special_tokens",
                          "is false, which needs text_input without text_pair_input and labels; "
                          "leave the parameter out");
  }
  prompt->LeaveOutTemplate();
  return absl::OkStatus();
}

// Checks that the prompt takes the parameters prompt_name and instruction, if they are given.
absl::Status CheckPromptName(const inference::ModelInferRequest& message, const Model& model,
                             const Prompt& prompt) {
  const bool named = message.parameters().contains("prompt_name");
  if (message.parameters().contains("instruction")) {
    const std::optional<PairFrame>& frame = model.config.serving.frame;
    if (!frame || !frame->takes_instruction()) {
      return ParameterError("instruction",
                            frame ? "is refused: the model's pair_frame.json has no "
                                    "frame_with_instruction. Leave the parameter out"
                                  : "is refused: the model has no pair_frame.json with a text for "
                                    "instructions. Leave the parameter out");
    }
    if (!prompt.framed()) {
      return ParameterError("instruction", "needs text_input with text_pair_input");
    }
    if (named) return ParameterError("instruction", "cannot be combined with prompt_name");
  }
  if (prompt.takes_prompt() || prompt.framed() || !named) return absl::OkStatus();
  return ParameterError("prompt_name", "needs text_input without text_pair_input");
}

// Checks that the requested results of texts in windows can be computed from the windows' results,
// and that no input has a row for each text: the engine's rows are the windows.
absl::Status CheckWindows(const inference::ModelInferRequest& message, const InputTensors& inputs,
                          const RequestSpec& spec, const Prompt& prompt, uint32_t outputs,
                          bool token_ids) {
  if (spec.window_overlap == 0) return absl::OkStatus();
  if (!prompt.takes_prompt()) {
    return ParameterError("window_overlap", "needs text_input without text_pair_input");
  }
  if (message.parameters().contains("truncate")) {
    return ParameterError("window_overlap",
                          "cannot be combined with truncate; set only one of them");
  }
  for (const InputInfo& info : Inputs()) {
    if (info.of_prompt || !inputs.has(info.input)) continue;
    return InputError(absl::string_view(info.name.data(), info.name.size()),
                      "cannot be combined with the parameter window_overlap, because each window "
                      "is a row; remove one of them");
  }
  if ((outputs & ~(kOutputScores | kOutputTokenScores)) == 0 && !token_ids) {
    return absl::OkStatus();
  }
  return ParameterError("window_overlap",
                        "is only for the outputs of classifiers; request only scores, label, "
                        "token_scores, token_labels and token_offsets");
}

// Returns the text before each text, or the instruction in a frame. A frame without a place for
// an instruction ignores the model's prompts, as its chat template does.
std::string_view PromptText(const RequestSpec& spec, const Model& model, const Prompt& prompt) {
  const ServingConfig& serving = model.config.serving;
  if (prompt.framed() && !serving.frame->takes_instruction()) return {};
  if (!spec.instruction.empty()) return spec.instruction;
  const NamedPrompt* const named = serving.FindPrompt(spec.prompt_name);
  return named == nullptr ? std::string_view() : std::string_view(named->text);
}

MonoTime DeadlineOf(const CallContext& call, int64_t timeout_us) {
  if (timeout_us == 0) return call.rpc_deadline;
  return std::min(call.rpc_deadline, call.received + std::chrono::microseconds(timeout_us));
}

absl::Status CheckPriority(const inference::ModelInferRequest& message, const RequestSpec& spec,
                           const CallContext& call) {
  if (!AsksForPriority(message, spec) || spec.priority >= call.max_priority) {
    return absl::OkStatus();
  }
  return ReasonError(Reason::kPriority,
                     absl::StrCat("parameter priority is ", spec.priority,
                                  "; this caller may use levels ", call.max_priority, " to ",
                                  kPriorityLevels, ". Request one of them, or no level"));
}

// Returns whether the message asks for MaxSim: the texts are then queries and documents instead of
// pairs for a cross-encoder.
bool ComparesVectors(const inference::ModelInferRequest& message, const InputTensors& inputs,
                     const Model& model) {
  if (!inputs.has(Input::kTextPairInput) || model.config.vector_size() == 0) return false;
  if (message.outputs().empty()) return model.config.serving.multi_vector;
  return std::ranges::any_of(message.outputs(), [](const auto& output) {
    return output.name() == InfoOf(Output::kMaxSim).name;
  });
}

// Returns the last tokens of each prompt, which affect the text of the answer.
std::vector<std::vector<int32_t>> TokensBefore(const Request& request,
                                               const std::vector<int32_t>& lengths) {
  std::vector<std::vector<int32_t>> before;
  if (!request.inputs.empty()) return before;
  std::span<const int32_t> rest = request.tokens;
  for (const int32_t length : lengths) {
    const auto last = rest.first(length).last(std::min<size_t>(length, TextStream::kMostBefore));
    before.emplace_back(last.begin(), last.end());
    rest = rest.subspan(length);
  }
  return before;
}

// Takes the positions of labels and words, and the places of words.
void TakeWords(const Prompt& prompt, Request* request, ReplySpec* reply) {
  request->vectors.begin.push_back(0);
  for (int64_t row = 0; row < prompt.rows(); ++row) {
    TextRows::RowWords words = prompt.WordsOf(row);
    std::vector<int32_t>& positions = request->vectors.values;
    positions.insert(positions.end(), words.positions.begin(), words.positions.end());
    request->vectors.begin.push_back(static_cast<int32_t>(std::ssize(positions)));
    reply->words.push_back(std::move(words.characters));
  }
}

absl::Status CheckId(const std::string& id) {
  if (id.size() <= kMaxRequestIdBytes) return absl::OkStatus();
  return ReasonError(Reason::kRequest, absl::StrCat("id has ", id.size(), " bytes; the limit is ",
                                                    kMaxRequestIdBytes));
}

}  // namespace

absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      const RequestLimits& limits, const CallContext& call) {
  SLUICE_RETURN_IF_ERROR(CheckId(message.id()));
  const Model& model = *call.model;
  const NamedModel named(model, call.head.get());
  const auto spec = std::make_shared<RequestSpec>();
  spec->model = call.model;
  spec->adapter = AdapterOf(message.model_name());
  spec->head = call.head;
  ValidRequest valid;
  Request& request = valid.request;
  ReplySpec& reply = valid.reply;

  SLUICE_ASSIGN_OR_RETURN(const InputTensors inputs, ReadInputs(message, model));
  const bool similar = ComparesVectors(message, inputs, model);
  SLUICE_ASSIGN_OR_RETURN(Prompt prompt, Prompt::Read(inputs, model, limits.max_rows, similar));
  SLUICE_RETURN_IF_ERROR(ReadParameters(message.parameters(), model.config, spec.get()));
  SLUICE_RETURN_IF_ERROR(CheckPriority(message, *spec, call));
  const RequestedExtras extras{.top = spec->num_top > 0,
                               .candidates = inputs.has(Input::kCandidateIds),
                               .diverse = spec->diversity > 0,
                               .located = prompt.takes_prompt(),
                               .similar = similar,
                               .spans = !spec->states.spans.empty(),
                               .labels = !spec->extraction.labels.empty()};
  SLUICE_ASSIGN_OR_RETURN(reply.outputs, ReadOutputs(message, named, extras));
  SLUICE_RETURN_IF_ERROR(CheckPromptName(message, model, prompt));
  SLUICE_RETURN_IF_ERROR(CheckSpanUnit(*spec, prompt));
  SLUICE_RETURN_IF_ERROR(CheckLabels(*spec, prompt));
  SLUICE_RETURN_IF_ERROR(ApplyTemplate(*spec, &prompt));
  const auto requested = [&reply](Output output) {
    return std::find(reply.outputs.begin(), reply.outputs.end(), output) != reply.outputs.end();
  };
  const bool reports_places = requested(Output::kTokenOffsets);
  const bool located = reports_places || NeedsPlaces(*spec);
  const bool token_ids = requested(Output::kTokenIds);
  request.outputs = MaskOf(reply.outputs);
  SLUICE_RETURN_IF_ERROR(CheckWindows(message, inputs, *spec, prompt, request.outputs, token_ids));
  if (spec->window_overlap > 0) spec->truncate = Truncation::kRight;  // no row is cut
  if (const int64_t least = prompt.LeastEncoded(model); least > 0 && call.before_encoding) {
    SLUICE_RETURN_IF_ERROR(call.before_encoding(least));
  }
  if (extras.labels) {
    SLUICE_RETURN_IF_ERROR(prompt.EncodeWords(spec->extraction.labels, spec->truncate));
  } else {
    SLUICE_RETURN_IF_ERROR(prompt.Encode(PromptText(*spec, model, prompt), spec->states.task,
                                         spec->truncate, located, spec->window_overlap > 0, model));
  }
  SLUICE_RETURN_IF_ERROR(ReadStop(model, spec.get()));
  if ((request.outputs & kOutputTokens) == 0 && !message.parameters().contains("max_tokens")) {
    spec->max_tokens = 0;
  }
  if (spec->window_overlap > 0) {
    if (reports_places) reply.ranges = prompt.Ranges();
    SLUICE_ASSIGN_OR_RETURN(
        reply.windows,
        prompt.Split(spec->window_overlap, model.config.max_positions, limits.max_rows));
  }
  SLUICE_RETURN_IF_ERROR(CheckRoom(*spec, model, request.outputs, &prompt));
  SLUICE_RETURN_IF_ERROR(ReadPrediction(model, spec.get()));
  if (spec->window_overlap == 0) request.hidden = prompt.Fill();
  if ((request.outputs & kOutputEmbedding) != 0 && !model.config.serving.pools_prompt) {
    SLUICE_ASSIGN_OR_RETURN(spec->states.first_pooled, prompt.LengthOfPrompt());
  }
  SLUICE_RETURN_IF_ERROR(ReadItemLists(inputs, prompt.rows(), model.config, *spec, &request));
  SLUICE_RETURN_IF_ERROR(CheckDiversity(*spec, request));
  ApplyDefaults(message, call, spec.get(), &reply);
  int32_t longest = prompt.longest();
  if (spec->window_overlap > 0) longest = std::ranges::max(prompt.LengthsOf(reply.windows));
  SLUICE_ASSIGN_OR_RETURN(reply.max_bytes, BoundReply(*spec, request, reply.outputs, prompt.rows(),
                                                      longest, limits.max_reply_bytes));
  SLUICE_RETURN_IF_ERROR(prompt.Copy(model, &request));
  if (requested(Output::kTextOutput)) reply.before = TokensBefore(request, prompt.lengths());
  if (reports_places && spec->window_overlap == 0) reply.ranges = prompt.Ranges();
  if (extras.spans) {
    const SpanTexts texts{
        .inputs = inputs,
        .ranges = NeedsPlaces(*spec) ? prompt.Ranges() : std::vector<ByteRange>()};
    SLUICE_ASSIGN_OR_RETURN(request.spans, SpanPositions(*spec, prompt.lengths(), texts));
    reply.span_counts = SizesOf(request.spans);
    for (int32_t& count : reply.span_counts) count /= 2;
  }
  if (extras.labels) TakeWords(prompt, &request, &reply);
  request.queries = prompt.queries();
  if (token_ids) reply.token_ids.assign(request.tokens.begin(), request.tokens.end());
  reply.cut_tokens = prompt.cut_tokens();
  spec->id = message.id();
  spec->lengths = prompt.TakeLengths();
  if ((request.outputs & (kOutputVectors | kOutputMaxSim)) != 0) {
    request.vectors = VectorPositions(*spec, request);
    reply.vector_counts = SizesOf(request.vectors);
  }
  request.deadline = DeadlineOf(call, spec->timeout_us);
  request.trace = call.trace;
  request.spec = reply.request = spec;
  return valid;
}

}  // namespace sluice
