#include "client/request.h"

#include <algorithm>
#include <bit>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/option_value.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "client/parameter.h"

namespace sluice::client {
namespace {

using inference::ModelInferRequest;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "raw tensors are little-endian");

absl::Status KeyError(absl::string_view key, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", problem));
}

absl::StatusOr<std::vector<int32_t>> IdsFromJson(const std::string& key, const json& value) {
  const absl::Status error = KeyError(key, "expected a list of at least one 32-bit integer");
  if (!value.is_array() || value.empty()) return error;
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& item : value) {
    if (!item.is_number_integer()) return error;
    const bool huge = item.is_number_unsigned() && item.get<uint64_t>() > INT32_MAX;
    if (huge || !std::in_range<int32_t>(item.get<int64_t>())) return error;
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

absl::Status SetOutputsFromJson(const json& value, ModelInferRequest* request) {
  request->clear_outputs();
  for (const json& name : value) {
    if (!value.is_array() || !name.is_string()) {
      return KeyError("outputs", "expected a list of strings");
    }
    AddOutput(name.get<std::string>(), request);
  }
  return value.is_array() ? absl::OkStatus() : KeyError("outputs", "expected a list of strings");
}

// Returns the index of the input of that name, added if needed, with an empty shape and no
// contents.
int ClearedInput(const std::string& name, const char* datatype, ModelInferRequest* request) {
  int at = 0;
  while (at < request->inputs_size() && request->inputs(at).name() != name) ++at;
  if (at == request->inputs_size()) {
    request->add_inputs()->set_name(name);
    request->add_raw_input_contents();
  }
  request->mutable_inputs(at)->set_datatype(datatype);
  request->mutable_inputs(at)->clear_shape();
  return at;
}

absl::Status SetVectorsFromJson(const json& value, ModelInferRequest* request) {
  const absl::Status error = KeyError(
      "inputs_embeds", "expected a list of lists of finite numbers, all of the same length");
  if (!value.is_array() || value.empty() || !value[0].is_array() || value[0].empty()) return error;
  std::vector<float> values;
  for (const json& row : value) {
    if (!row.is_array() || row.size() != value[0].size()) return error;
    for (const json& number : row) {
      if (!number.is_number()) return error;
      values.push_back(number.get<float>());
    }
  }
  const int at = ClearedInput("inputs_embeds", "FP32", request);
  for (const size_t size : {size_t{1}, value.size(), value[0].size()}) {
    request->mutable_inputs(at)->add_shape(size);
  }
  request->set_raw_input_contents(at, values.data(), values.size() * sizeof(float));
  return absl::OkStatus();
}

// Returns the number of prompt inputs.
int Prompts(const ModelInferRequest& request) {
  return std::count_if(request.inputs().begin(), request.inputs().end(), [](const auto& input) {
    return input.name() != "candidate_ids" && input.name() != "exclude_ids" &&
           input.name() != "text_pair_input";
  });
}

absl::Status UnknownKey(const std::string& key) {
  std::vector<std::string> known = {"text",          "text_pair",   "ids", "inputs_embeds",
                                    "candidate_ids", "exclude_ids", "id",  "model",
                                    "version",       "outputs"};
  for (const ParameterInfo* info : Parameters()) known.emplace_back(info->client_name);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key ", Quote(key.substr(0, 80)), Suggestion(key, known)));
}

absl::Status SetFromJson(const std::string& key, const json& value, ModelInferRequest* request) {
  for (const ParameterInfo* info : Parameters()) {
    if (key == info->client_name) return SetParameterFromJson(*info, value, request);
  }
  if (key == "outputs") return SetOutputsFromJson(value, request);
  if (key == "inputs_embeds") return SetVectorsFromJson(value, request);
  const bool items = key == "candidate_ids" || key == "exclude_ids";
  if (items || key == "ids") {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, IdsFromJson(key, value));
    items ? SetItems(key, ids, request) : SetIds(ids, request);
    return absl::OkStatus();
  }
  const bool text = key == "text" || key == "text_pair";
  const bool known = text || key == "id" || key == "model" || key == "version";
  if (!known) return UnknownKey(key);
  if (!value.is_string()) return KeyError(key, "expected a string");
  if (text) SetTexts(key + "_input", {value.get<std::string>()}, request);
  if (key == "id") request->set_id(value.get<std::string>());
  if (key == "model") request->set_model_name(value.get<std::string>());
  if (key == "version") request->set_model_version(value.get<std::string>());
  return absl::OkStatus();
}

// Appends a length. It is far below 2^32, because a message has at most 2^31 bytes.
void AppendLength(size_t length, std::string* raw) {
  const uint32_t prefix = static_cast<uint32_t>(length);
  raw->append(reinterpret_cast<const char*>(&prefix), sizeof prefix);
}

}  // namespace

void SetTexts(const std::string& name, const std::vector<std::string>& texts,
              ModelInferRequest* request) {
  const int at = ClearedInput(name, "BYTES", request);
  request->mutable_inputs(at)->add_shape(std::ssize(texts));
  request->mutable_inputs(at)->add_shape(1);
  std::string* const raw = request->mutable_raw_input_contents(at);
  raw->clear();
  for (const std::string& text : texts) {
    AppendLength(text.size(), raw);
    raw->append(text);
  }
}

void SetText(absl::string_view text, ModelInferRequest* request) {
  SetTexts("text_input", {std::string(text)}, request);
}

absl::Status ReadText(std::istream& in, ModelInferRequest* request) {
  constexpr size_t kMaxBytes = 16 << 20;
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(in.gcount());
  if (in.bad()) return absl::InvalidArgumentError("cannot be read");
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("longer than ", kMaxBytes, " bytes"));
  }
  SetText(text, request);
  return absl::OkStatus();
}

void SetIds(absl::Span<const int32_t> ids, ModelInferRequest* request) {
  auto* input = request->add_inputs();
  input->set_name("input_ids");
  input->set_datatype("INT32");
  input->add_shape(1);
  input->add_shape(std::ssize(ids));
  request->add_raw_input_contents(ids.data(), ids.size() * sizeof(int32_t));
}

void SetItems(const std::string& name, absl::Span<const int32_t> ids, ModelInferRequest* request) {
  const int at = ClearedInput(name, "INT32", request);
  request->mutable_inputs(at)->add_shape(1);
  request->mutable_inputs(at)->add_shape(std::ssize(ids));
  request->set_raw_input_contents(at, ids.data(), ids.size() * sizeof(int32_t));
}

absl::Status SetVectors(const std::string& text, ModelInferRequest* request) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return SetVectorsFromJson(value, request);
}

void AddOutput(const std::string& name, ModelInferRequest* request) {
  request->add_outputs()->set_name(name);
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text) {
  constexpr Integer kId{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  std::vector<int32_t> ids;
  for (absl::string_view piece : absl::StrSplit(text, ',')) {
    piece = absl::StripAsciiWhitespace(piece);
    if (!kId.Parse(piece, &ids.emplace_back())) {
      return KeyError("ids", absl::StrCat("expected comma-separated 32-bit integers, got ",
                                          Quote(piece.substr(0, 80))));
    }
  }
  return ids;
}

absl::StatusOr<ModelInferRequest> ParseRequestLine(const std::string& line,
                                                   const ModelInferRequest& defaults) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  // The parser would treat a NUL as the end of the text.
  if (object.is_discarded() || absl::StrContains(line, '\0')) {
    return absl::InvalidArgumentError("not valid JSON");
  }
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  ModelInferRequest request = defaults;
  for (const auto& [key, value] : object.items()) {
    SLUICE_RETURN_IF_ERROR(SetFromJson(key, value, &request));
  }
  if (Prompts(request) != 1) {
    return absl::InvalidArgumentError(
        "needs exactly one of \"text\", \"ids\" and \"inputs_embeds\"");
  }
  return request;
}

}  // namespace sluice::client
