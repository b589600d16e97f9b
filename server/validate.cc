#include "server/validate.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/parameter_value.h"
#include "server/parameters.h"
#include "server/status.h"
#include "server/tensors.h"

namespace sluice {
namespace {

// No tokenizer makes tokens longer than this, so that longer texts are refused before encoding.
constexpr int64_t kMaxBytesPerToken = 256;

constexpr absl::string_view kInputNames[] = {"input_ids", "input_lengths", "text_input"};

struct Inputs {
  InputTensor ids, lengths, text;
};

absl::StatusOr<Inputs> ReadInputs(const inference::ModelInferRequest& message, const Model& model) {
  const bool has_text = model.tokenizer != nullptr;
  absl::StatusOr<std::vector<InputTensor>> found =
      FindInputs(message, std::span(kInputNames).first(has_text ? 3 : 2));
  if (!found.ok()) return found.status();
  Inputs inputs{(*found)[0], (*found)[1], has_text ? (*found)[2] : InputTensor{}};
  const bool ids = inputs.ids.header != nullptr;
  const bool text = inputs.text.header != nullptr;
  if (ids && text) return InputError("text_input", "excludes input_ids; give one of them");
  if (!ids && !text) {
    return InputError("input_ids", has_text ? "is missing, and so is text_input" : "is missing");
  }
  if (text && inputs.lengths.header != nullptr) {
    return InputError("input_lengths", "belongs to input_ids, which is absent");
  }
  return inputs;
}

absl::Status TokenError(int64_t row, int64_t position, int64_t id, int64_t vocab) {
  return InputError("input_ids", absl::StrCat("[", row, ", ", position, "] is ", id,
                                              "; expected 0 to ", vocab - 1));
}

absl::Status ReadLengths(const InputTensor& tensor, const IntMatrix& ids, Request* request) {
  const int32_t columns = static_cast<int32_t>(ids.columns);
  request->lengths.assign(ids.rows, columns);
  if (tensor.header == nullptr) return absl::OkStatus();
  absl::StatusOr<IntMatrix> lengths =
      ReadInts(tensor, /*int64_allowed=*/false, {ids.rows, ids.rows}, {1, 1});
  if (!lengths.ok()) return lengths.status();
  for (int64_t row = 0; row < ids.rows; ++row) {
    const int64_t length = lengths->At(row, 0);
    if (length < 1 || length > columns) {
      return InputError("input_lengths",
                        absl::StrCat("[", row, "] is ", length, "; expected 1 to ", columns));
    }
    request->lengths[row] = static_cast<int32_t>(length);
  }
  return absl::OkStatus();
}

absl::Status CopyTokens(const IntMatrix& ids, int64_t vocab, Request* request) {
  int64_t total = 0;
  for (int32_t length : request->lengths) total += length;
  request->tokens.reserve(total);
  for (int64_t row = 0; row < ids.rows; ++row) {
    for (int32_t position = 0; position < request->lengths[row]; ++position) {
      const int64_t id = ids.At(row, position);
      if (id < 0 || id >= vocab) return TokenError(row, position, id, vocab);
      request->tokens.push_back(static_cast<int32_t>(id));
    }
  }
  return absl::OkStatus();
}

absl::Status EncodeTexts(const std::vector<std::string_view>& texts, const Model& model,
                         Request* request) {
  const int64_t max_positions = model.config.max_positions;
  for (size_t row = 0; row < texts.size(); ++row) {
    const std::string name = absl::StrCat("[", row, "] has ");
    if (static_cast<int64_t>(texts[row].size()) > max_positions * kMaxBytesPerToken) {
      return InputError("text_input", absl::StrCat(name, texts[row].size(), " bytes; the limit is ",
                                                   max_positions * kMaxBytesPerToken));
    }
    const absl::StatusOr<std::vector<int32_t>> tokens = model.tokenizer->Encode(texts[row]);
    if (!tokens.ok()) {
      return InputError("text_input",
                        absl::StrCat("[", row, "] is refused: ", tokens.status().message()));
    }
    const int64_t count = static_cast<int64_t>(tokens->size());
    if (count < 1 || count > max_positions) {
      return InputError("text_input", absl::StrCat(name, count, " tokens; expected 1 to ",
                                                   max_positions, " (the model's max_positions)"));
    }
    request->tokens.insert(request->tokens.end(), tokens->begin(), tokens->end());
    request->lengths.push_back(static_cast<int32_t>(count));
  }
  return absl::OkStatus();
}

// Checked shapes and sizes, values not yet copied.
struct Prompt {
  IntMatrix ids;
  std::vector<std::string_view> texts;
};

absl::StatusOr<Prompt> ReadPrompt(const Inputs& inputs, const Model& model,
                                  const RequestLimits& limits, Request* request) {
  const Extent rows{1, limits.max_rows};
  Prompt prompt;
  if (inputs.text.header != nullptr) {
    absl::StatusOr<std::vector<std::string_view>> texts = ReadStrings(inputs.text, rows);
    if (!texts.ok()) return texts.status();
    prompt.texts = *std::move(texts);
    return prompt;
  }
  absl::StatusOr<IntMatrix> ids =
      ReadInts(inputs.ids, /*int64_allowed=*/true, rows, {1, model.config.max_positions});
  if (!ids.ok()) return ids.status();
  prompt.ids = *ids;
  if (absl::Status status = ReadLengths(inputs.lengths, prompt.ids, request); !status.ok()) {
    return status;
  }
  return prompt;
}

absl::Status OutputError(absl::string_view name, absl::string_view problem) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat("output ", Printable(name), " ", problem)), "output");
}

bool IsTop(const OutputInfo& info) { return (info.mask & kOutputTopCandidates) != 0; }

absl::Status ReadOutputs(const inference::ModelInferRequest& message, const Parameters& parameters,
                         ReplySpec* reply) {
  const bool has_top = parameters.num_top_logprobs > 0;
  for (const auto& requested : message.outputs()) {
    const OutputInfo* info = FindOutput(requested.name(), *reply->model);
    if (info == nullptr) return OutputError(requested.name(), "is unknown");
    if (!requested.parameters().empty()) {
      return OutputError(requested.name(), "takes no parameters");
    }
    if (std::count(reply->outputs.begin(), reply->outputs.end(), info->output) != 0) {
      return OutputError(requested.name(), "appears twice");
    }
    if (IsTop(*info) && !has_top) {
      return OutputError(requested.name(), "needs the parameter num_top_logprobs");
    }
    reply->outputs.push_back(info->output);
  }
  if (!reply->outputs.empty()) return absl::OkStatus();
  for (const OutputInfo& info : Outputs()) {
    if (IsDefaultOf(info, *reply->model) || (has_top && IsTop(info))) {
      reply->outputs.push_back(info.output);
    }
  }
  return absl::OkStatus();
}

// Upper bound of an output's bytes, in floating point: its factors may overflow integers.
double OutputBytes(Output output, const Model& model, double rows, double longest,
                   const Parameters& parameters) {
  const double generated = static_cast<double>(parameters.max_tokens);
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
      return 4 * rows * generated * static_cast<double>(parameters.num_top_logprobs);
    case Output::kLogits:
      return 4 * rows * static_cast<double>(model.config.vocab_size);
    case Output::kPromptLogprobs:
      return 4 * rows * longest;
    case Output::kXsaCosSim:
    case Output::kXsaProjFrac:
      return 4 * rows * longest * static_cast<double>(model.config.layers) *
             static_cast<double>(model.config.heads);
  }
  return 0;
}

int32_t Longest(const Request& request) {
  return *std::max_element(request.lengths.begin(), request.lengths.end());
}

absl::Status CheckReplySize(const Request& request, const Parameters& parameters,
                            const RequestLimits& limits, ReplySpec* reply) {
  // Beside the tensors: model name, id and parameters, and of each output name, type and shape.
  constexpr double kHead = 1024, kOutputHead = 256;
  double bytes = kHead;
  for (Output output : reply->outputs) {
    bytes += kOutputHead;
    bytes += OutputBytes(output, *reply->model, request.rows(), Longest(request), parameters);
  }
  if (bytes <= static_cast<double>(limits.max_reply_bytes)) {
    reply->most_bytes = static_cast<int64_t>(bytes);
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

absl::Status CheckRoom(const Request& request, const Parameters& parameters, const Model& model) {
  const int64_t limit = model.config.max_positions + 1;
  if (Longest(request) + parameters.max_tokens <= limit) return absl::OkStatus();
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat("parameter max_tokens is ", parameters.max_tokens,
                                              " and the longest row has ", Longest(request),
                                              " tokens; together they may be at most ", limit,
                                              " (the model's max_positions + 1)")),
      "parameter");
}

void ApplyGeneration(Parameters&& parameters, ValidRequest* valid) {
  valid->reply.max_tokens = static_cast<int32_t>(parameters.max_tokens);
  valid->reply.stop_texts = parameters.stop.texts;
  valid->reply.min_tokens = parameters.stop.min_tokens;
  valid->reply.empty_final_response = parameters.empty_final_response;
  valid->request.edits = std::move(parameters.edits);
  valid->request.stop = std::move(parameters.stop);
}

void Apply(const Parameters& parameters, const CallFacts& arrival, ValidRequest* valid) {
  Request& request = valid->request;
  request.max_tokens = static_cast<int32_t>(parameters.max_tokens);
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
  request.outputs = 0;
  for (Output output : valid->reply.outputs) request.outputs |= InfoOf(output).mask;
  if ((request.outputs & kOutputTopCandidates) != 0) {
    request.num_top = static_cast<int32_t>(parameters.num_top_logprobs);
    valid->reply.num_top = request.num_top;
  }
}

}  // namespace

absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      std::shared_ptr<const Model> model,
                                      const RequestLimits& limits, const CallFacts& arrival) {
  if (message.id().size() > kMaxRequestIdBytes) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("id has ", message.id().size(),
                                                " bytes; the limit is ", kMaxRequestIdBytes)),
        "request");
  }
  ValidRequest valid;
  Request& request = valid.request;
  valid.reply.model = request.model = std::move(model);
  valid.reply.id = request.id = message.id();
  const Model& served = *request.model;

  absl::StatusOr<Inputs> inputs = ReadInputs(message, served);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<Prompt> prompt = ReadPrompt(*inputs, served, limits, &request);
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<Parameters> parameters = ReadParameters(message.parameters(), served.config);
  if (!parameters.ok()) return parameters.status();
  absl::Status status = ReadOutputs(message, *parameters, &valid.reply);
  if (status.ok() && !prompt->texts.empty()) {
    status = EncodeTexts(prompt->texts, served, &request);
  }
  if (status.ok()) status = CheckStop(*parameters, served);
  if (status.ok()) status = CheckRoom(request, *parameters, served);
  if (status.ok()) status = CheckReplySize(request, *parameters, limits, &valid.reply);
  if (status.ok() && prompt->texts.empty()) {
    status = CopyTokens(prompt->ids, served.config.vocab_size, &request);
  }
  if (!status.ok()) return status;
  valid.reply.lengths = request.lengths;
  Apply(*parameters, arrival, &valid);
  ApplyGeneration(*std::move(parameters), &valid);
  return valid;
}

}  // namespace sluice
