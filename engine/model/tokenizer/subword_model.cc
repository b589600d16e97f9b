#include "engine/model/tokenizer/subword_model.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"

namespace sluice::tokenize {
namespace {

// Old files have no type: a list of pieces means Unigram, merges mean BPE.
std::string TypeOf(ObjectReader& fields) {
  if (fields.Has("type")) return fields.String("type", kMaxTypeBytes);
  if (fields.Has("merges")) return "BPE";
  return fields.Has("vocab") && fields.Find("vocab")->is_array() ? "Unigram" : "WordPiece";
}

// The byte count of a token for unknown characters.
constexpr size_t kJoinedBytes = 256;

}  // namespace

void AppendPlaces(const std::vector<int32_t>& ids, size_t first, SubwordModel::Place place,
                  std::vector<SubwordModel::Place>* places) {
  if (places != nullptr) places->insert(places->end(), ids.size() - first, place);
}

int64_t LongestTokenBytes(const SubwordModel& model) {
  const size_t longest = model.vocabulary().longest_bytes();
  return std::max(longest, model.joins_unknown() ? kJoinedBytes : 1);
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseSubwordModel(
    const nlohmann::json* object) {
  if (object == nullptr || !object->is_object()) {
    return absl::InvalidArgumentError("model is not an object");
  }
  absl::Status status;
  ObjectReader fields(*object, "model.", &status);
  const std::string type = TypeOf(fields);
  std::unique_ptr<const SubwordModel> model;
  if (type == "BPE") {
    model = ReadBpe(fields);
  } else if (type == "WordPiece") {
    model = ReadWordPiece(fields);
  } else if (type == "Unigram") {
    model = ReadUnigram(fields);
  } else if (type == "WordLevel") {
    model = ReadWordLevel(fields);
  } else {
    fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  }
  SLUICE_RETURN_IF_ERROR(status);
  return model;
}

}  // namespace sluice::tokenize
