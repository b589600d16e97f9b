#include "engine/model/tokenizer/post_processor.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {
namespace {

constexpr size_t kMaxFrame = 256;

// Reads the id of ["text", id].
int32_t ReadPair(const std::string& key, ObjectReader& fields) {
  const nlohmann::json* pair = fields.Find(key);
  const bool valid = pair != nullptr && pair->is_array() && pair->size() == 2 &&
                     (*pair)[1].is_number_unsigned() && (*pair)[1].get<uint64_t>() < kMaxTokens;
  if (valid) return (*pair)[1].get<int32_t>();
  fields.Fail(key, "is not a token and its id");
  return kNoToken;
}

PostProcessor ReadBert(ObjectReader& fields) {
  return {{ReadPair("cls", fields)}, {ReadPair("sep", fields)}};
}

std::vector<int32_t> ReadIds(const std::string& token, ObjectReader& specials) {
  ObjectReader special = specials.Object(token);
  const std::vector<int64_t> wide = special.Integers("ids", 0, kMaxTokens - 1);
  if (wide.empty() || wide.size() > kMaxFrame) specials.Fail(token, "has no list of ids");
  return {wide.begin(), wide.end()};
}

PostProcessor ReadTemplate(ObjectReader& fields) {
  PostProcessor post_processor;
  const nlohmann::json* single = fields.Find("single");
  if (single == nullptr || !single->is_array() || single->size() > kMaxFrame) {
    fields.Fail("single", absl::StrCat("is not a list of at most ", kMaxFrame));
    return post_processor;
  }
  ObjectReader specials = fields.Object("special_tokens");
  int texts = 0;
  for (const nlohmann::json& part : *single) {
    if (part.is_object() && part.contains("Sequence")) {
      ++texts;
    } else if (part.is_object() && part.contains("SpecialToken") &&
               part["SpecialToken"].is_object()) {
      const std::string id = part["SpecialToken"].value("id", nlohmann::json()).is_string()
                                 ? part["SpecialToken"]["id"].get<std::string>()
                                 : std::string();
      std::vector<int32_t>& side = texts == 0 ? post_processor.prefix : post_processor.suffix;
      for (const int32_t token : ReadIds(id, specials)) side.push_back(token);
    } else {
      fields.Fail("single", "has a part that is neither Sequence nor SpecialToken");
    }
  }
  if (texts != 1) fields.Fail("single", absl::StrCat("has the text ", texts, " times"));
  return post_processor;
}

PostProcessor Read(const std::string& type, ObjectReader& fields) {
  if (type == "TemplateProcessing") return ReadTemplate(fields);
  if (type == "BertProcessing" || type == "RobertaProcessing") return ReadBert(fields);
  if (type == "ByteLevel") return {};  // it only changes offsets in the text
  fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  return {};
}

}  // namespace

void PostProcessor::SetBos(int32_t bos, bool wanted) {
  const bool has = !prefix.empty() && prefix.front() == bos;
  if (bos == kNoToken || has == wanted) return;
  if (wanted) {
    prefix.insert(prefix.begin(), bos);
  } else {
    prefix.erase(prefix.begin());
  }
}

void PostProcessor::SetEos(int32_t eos, bool wanted) {
  const bool has = !suffix.empty() && suffix.back() == eos;
  if (eos == kNoToken || has == wanted) return;
  if (wanted) {
    suffix.push_back(eos);
  } else {
    suffix.pop_back();
  }
}

absl::StatusOr<PostProcessor> ParsePostProcessor(const nlohmann::json* object) {
  absl::Status status;
  PostProcessor post_processor;
  VisitMembers(
      object, "post_processor", "processors",
      [&](const std::string& type, ObjectReader& fields) {
        const PostProcessor outer = Read(type, fields);
        post_processor.prefix.insert(post_processor.prefix.begin(), outer.prefix.begin(),
                                     outer.prefix.end());
        post_processor.suffix.insert(post_processor.suffix.end(), outer.suffix.begin(),
                                     outer.suffix.end());
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return post_processor;
}

}  // namespace sluice::tokenize
