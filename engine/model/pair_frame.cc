#include "engine/model/pair_frame.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"
#include "engine/model/settings_file.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int64_t kMaxParts = 32;
constexpr size_t kMaxPartBytes = 16384;

}  // namespace

std::vector<PairFrame::Part> PairFrame::ReadParts(ObjectReader& root, const std::string& key,
                                                  bool instructed) {
  std::vector<Part> parts;
  const json* const list = root.Find(key);
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxParts) {
    root.Fail(key, absl::StrCat("is not a list of 1 to ", kMaxParts, " parts"));
    return parts;
  }
  int64_t times[CountEnumerators<FrameInput>()] = {};
  for (const json& each : *list) {
    const std::string place = absl::StrCat(key, "[", parts.size(), "]");
    if (!each.is_object() || each.size() != 1) {
      root.Fail(place, "is not an object with one of the keys text and input");
      return parts;
    }
    absl::Status status;
    ObjectReader object(each, "", &status);
    object.AllowOnly({"text", "input"});
    Part part;
    if (object.Has("input")) {
      part.input = object.Enum<FrameInput>("input");
      ++times[static_cast<size_t>(part.input)];
    } else {
      part.text = object.String("text", kMaxPartBytes);
      if (status.ok() && part.text.empty()) object.Fail("text", "is empty");
    }
    if (!status.ok()) root.Fail(place, absl::StrCat("is wrong: ", status.message()));
    parts.push_back(std::move(part));
  }
  for (const auto& [input, name] : kEnumNames<FrameInput>) {
    const int64_t wanted = input == FrameInput::kInstruction && !instructed ? 0 : 1;
    const int64_t found = times[static_cast<size_t>(input)];
    if (found == wanted) continue;
    root.Fail(key, absl::StrCat("has the input ", std::string(name), " ", found,
                                " times; expected ", wanted));
  }
  return parts;
}

PairFrame PairFrame::Read(ObjectReader& root) {
  PairFrame frame;
  frame.bare_ = ReadParts(root, "frame", /*instructed=*/false);
  if (root.Has("frame_with_instruction")) {
    frame.instructed_ = ReadParts(root, "frame_with_instruction", /*instructed=*/true);
  }
  return frame;
}

std::string PairFrame::Text(const FramedTexts& texts) const {
  std::string text;
  for (const Part& part : texts.instruction.empty() ? bare_ : instructed_) {
    if (!part.text.empty()) {
      text += part.text;
    } else if (part.input == FrameInput::kInstruction) {
      text += texts.instruction;
    } else {
      text += part.input == FrameInput::kQuery ? texts.query : texts.document;
    }
  }
  return text;
}

// Two rows without a common token in their inputs have only the tail in common at their ends.
absl::StatusOr<std::vector<int32_t>> PairFrame::Tail(std::string_view instruction,
                                                     const Tokenizer& tokenizer) const {
  std::vector<int32_t> rows[2];
  for (const int i : {0, 1}) {
    const std::string_view filler = i == 0 ? "0" : "1 2 3 4";
    SLUICE_ASSIGN_OR_RETURN(
        rows[i], tokenizer.EncodeBare(
                     Text({.instruction = instruction, .query = filler, .document = filler}),
                     Tokenizer::kNoLimit));
  }
  const auto differ =
      std::mismatch(rows[0].rbegin(), rows[0].rend(), rows[1].rbegin(), rows[1].rend());
  if (differ.first == rows[0].rend()) return std::vector<int32_t>();
  return std::vector<int32_t>(differ.first.base(), rows[0].end());
}

void ReadLogitScore(ObjectReader& object, ModelConfig* config) {
  ClassifierConfig& classifier = config->serving.classifier;
  if (!config->has_lm_head || classifier.labels > 0) {
    object.Fail("true_token_id",
                absl::StrCat("needs a language model without a classifier; ", config->architecture,
                             config->has_lm_head ? " has a classifier" : " has no head"));
    return;
  }
  const int64_t last = config->vocab_size - 1;
  LogitScore score;
  score.true_token = object.Integer("true_token_id", 0, last);
  if (object.Has("false_token_id")) {
    score.false_token = object.Integer("false_token_id", 0, last);
    if (score.false_token == score.true_token) {
      object.Fail("false_token_id", "is equal to true_token_id; expected another token");
    }
  }
  classifier = {.labels = 1,
                .pooling = Pooling::kLast,
                .bias = false,
                .module = "",
                .scale = ScoreScale::kSigmoid,
                .logits = score};
}

absl::Status ReadPairFrame(const Directory& directory, ModelConfig* config) {
  ServingConfig& serving = config->serving;
  if (!directory.Has(kFrameFile)) {
    if (!serving.classifier.logits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the folder has no ", kFrameFile,
        ", and the model scores pairs in the text of its chat template; ", kMakeFrameFile));
  }
  SLUICE_ASSIGN_OR_RETURN(const json document, ReadSettings(directory, kFrameFile));
  absl::Status status;
  ObjectReader root(document, "", &status);
  root.AllowOnly(
      {"frame", "frame_with_instruction", "true_token_id", "false_token_id", "activation_fn"});
  serving.frame = PairFrame::Read(root);
  if (root.Has("true_token_id")) {
    ReadLogitScore(root, config);
    if (root.Has("activation_fn")) {
      serving.classifier.scale = ReadScoreScale(root, "activation_fn");
    }
  } else {
    for (const char* const key : {"false_token_id", "activation_fn"}) {
      if (root.Has(key)) root.Fail(key, "needs true_token_id");
    }
    if (serving.classifier.labels == 0 || serving.classifier.of_tokens) {
      root.Fail("true_token_id",
                "is missing, and neither modules.json nor config.json has a score of rows");
    }
  }
  return status.ok() ? status : OfFile(kFrameFile, status);
}

}  // namespace sluice
