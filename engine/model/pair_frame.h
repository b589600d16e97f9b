// The constant text around a query and a document, read from pair_frame.json in a model's folder.
//
// A reranker that is a language model reads one text. A chat template makes it from an instruction,
// a query and a document. The daemon runs no templates: `python -m sluice_client.pair_frame FOLDER`
// runs the template once and writes the constant parts of its text:
//   "frame": [part, ..]                    the text without an instruction
//   "frame_with_instruction": [part, ..]   absent if the model takes no instruction
//   "true_token_id": n, "false_token_id": m   as in LogitScore; only if modules.json has none
//   "activation_fn": "torch.nn.."          of the score; Sigmoid if absent
// A part is {"text": "constant text"} or {"input": "query"}, where the input is an instruction, a
// query or a document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice {

inline constexpr char kFrameFile[] = "pair_frame.json";
// The remedy if the file is missing.
inline constexpr char kMakeFrameFile[] =
    "make pair_frame.json with: python -m sluice_client.pair_frame FOLDER";

class Directory;
class ObjectReader;
class Tokenizer;
struct ModelConfig;

enum class FrameInput { kInstruction, kQuery, kDocument };
constexpr auto EnumNamesOf(FrameInput) {
  using enum FrameInput;
  return EnumNameTable<FrameInput>(
      {{kInstruction, "instruction"}, {kQuery, "query"}, {kDocument, "document"}});
}

// The texts of a row. An empty instruction is none.
struct FramedTexts {
  std::string_view instruction = {};
  std::string_view query;
  std::string_view document;
};

class PairFrame {
 public:
  // Reads the keys "frame" and "frame_with_instruction". The reader's status has any error.
  static PairFrame Read(ObjectReader& root);

  bool takes_instruction() const { return !instructed_.empty(); }
  // Returns the text of a row. Requires that there is no instruction unless takes_instruction().
  std::string Text(const FramedTexts& texts) const;
  // Returns the tokens that end every row with this instruction, whatever its query and document
  // are. A row that is cut keeps them. Returns the tokenizer's errors.
  absl::StatusOr<std::vector<int32_t>> Tail(std::string_view instruction,
                                            const Tokenizer& tokenizer) const;

 private:
  struct Part {
    std::string text;  // empty for an input
    FrameInput input = FrameInput::kQuery;
  };

  static std::vector<Part> ReadParts(ObjectReader& root, const std::string& key, bool instructed);

  std::vector<Part> bare_, instructed_;
};

// Reads true_token_id and false_token_id into the classifier of `config`, as the module LogitScore
// of sentence-transformers has them. Fails if the model has no logits or another classifier.
void ReadLogitScore(ObjectReader& object, ModelConfig* config);

// Applies pair_frame.json, if it is there, to `config`, which was read from the other files. It is
// an error if the file is missing although modules.json has a LogitScore. Errors name the file.
absl::Status ReadPairFrame(const Directory& directory, ModelConfig* config);

}  // namespace sluice
