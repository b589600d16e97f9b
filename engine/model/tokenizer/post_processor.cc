#include "engine/model/tokenizer/post_processor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {
namespace {

using Element = TextTemplate::Element;

constexpr size_t kMaxFrame = 256;
constexpr int64_t kMaxTypeId = 65535;

// Reads the id of ["text", id].
int32_t ReadPair(const std::string& key, ObjectReader& fields) {
  const nlohmann::json* pair = fields.Find(key);
  const bool valid = pair != nullptr && pair->is_array() && pair->size() == 2 &&
                     (*pair)[1].is_number_unsigned() && (*pair)[1].get<uint64_t>() < kMaxTokens;
  if (valid) return (*pair)[1].get<int32_t>();
  fields.Fail(key, "is not a list of a token and its id");
  return kNoToken;
}

TextTemplates ReadBert(ObjectReader& fields) {
  const int32_t cls = ReadPair("cls", fields), sep = ReadPair("sep", fields);
  const TextTemplate single{{{.token = cls}, {.text = 0}, {.token = sep}}};
  TextTemplate pair = single;
  pair.parts.push_back({.text = 1, .type = 1});
  pair.parts.push_back({.token = sep, .type = 1});
  return {single, pair};
}

// A pair has two separators between its texts, and no types.
TextTemplates ReadRoberta(ObjectReader& fields) {
  const int32_t cls = ReadPair("cls", fields), sep = ReadPair("sep", fields);
  const TextTemplate single{{{.token = cls}, {.text = 0}, {.token = sep}}};
  TextTemplate pair = single;
  for (const Element& part : {Element{.token = sep}, Element{.text = 1}, Element{.token = sep}}) {
    pair.parts.push_back(part);
  }
  return {single, pair};
}

std::vector<int32_t> ReadIds(const std::string& token, ObjectReader& specials) {
  ObjectReader special = specials.Object(token);
  const std::vector<int64_t> wide = special.Integers("ids", 0, kMaxTokens - 1);
  if (wide.empty() || wide.size() > kMaxFrame)
    specials.Fail(token, absl::StrCat("has no list of 1 to ", kMaxFrame, " ids"));
  return {wide.begin(), wide.end()};
}

// Reads a list of {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": {..}}, which has
// each of `texts` texts once.
TextTemplate ReadParts(const std::string& key, int texts, ObjectReader& fields) {
  const nlohmann::json* const list = fields.Find(key);
  if (list == nullptr || !list->is_array() || list->size() > kMaxFrame) {
    fields.Fail(key, absl::StrCat("is not a list of at most ", kMaxFrame, " parts"));
    return TextTemplate::TextOnly();
  }
  ObjectReader specials = fields.Object("special_tokens");
  TextTemplate read;
  int times[] = {0, 0};
  for (const nlohmann::json& part : *list) {
    const bool text = part.is_object() && part.contains("Sequence");
    const char* const kind = text ? "Sequence" : "SpecialToken";
    if (!part.is_object() || !part.contains(kind) || !part[kind].is_object()) {
      fields.Fail(key, "has a part that is neither Sequence nor SpecialToken");
      continue;
    }
    absl::Status status;
    ObjectReader object(part[kind], fields.PathOf(key) + ".", &status);
    const auto type = static_cast<int32_t>(object.Integer("type_id", 0, kMaxTypeId, 0));
    const int which = text ? object.Choice("id", {"A", "B"}) : 0;
    const std::string id = text ? "" : object.String("id", kMaxTokenBytes);
    if (!status.ok()) {
      fields.Fail(key, std::string(status.message()));
    } else if (text) {
      ++times[which];
      read.parts.push_back({.text = which, .type = type});
    } else {
      for (const int32_t token : ReadIds(id, specials)) {
        read.parts.push_back({.token = token, .type = type});
      }
    }
  }
  for (int text = 0; text < 2; ++text) {
    if (times[text] == (text < texts ? 1 : 0)) continue;
    fields.Fail(key, absl::StrCat("has the text ", text == 0 ? "A " : "B ", times[text],
                                  " times; expected ", text < texts ? 1 : 0));
  }
  return read;
}

TextTemplates ReadTemplates(ObjectReader& fields) {
  TextTemplates templates;
  templates.single = ReadParts("single", 1, fields);
  if (fields.Has("pair")) templates.pair = ReadParts("pair", 2, fields);
  return templates;
}

// Returns nothing for a type that adds no tokens.
std::optional<TextTemplates> Read(const std::string& type, ObjectReader& fields) {
  if (type == "TemplateProcessing") return ReadTemplates(fields);
  if (type == "BertProcessing") return ReadBert(fields);
  if (type == "RobertaProcessing") return ReadRoberta(fields);
  if (type == "ByteLevel") return std::nullopt;  // it only changes offsets in the text
  fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  return std::nullopt;
}

// Puts `outer` around the text that `inner` frames already.
TextTemplate Around(const TextTemplate& outer, const TextTemplate& inner) {
  TextTemplate around;
  for (const Element& part : outer.parts) {
    if (part.text == TextTemplate::kNoText) {
      around.parts.push_back(part);
    } else {
      around.parts.insert(around.parts.end(), inner.parts.begin(), inner.parts.end());
    }
  }
  return around;
}

// Makes a pair of two single texts, one after the other.
void PairSingles(TextTemplates* templates) {
  if (!templates->pair) return;
  templates->pair = templates->single;
  for (Element part : templates->single.parts) {
    if (part.text == 0) part.text = 1;
    part.type = 1;
    templates->pair->parts.push_back(part);
  }
}

bool IsToken(const Element& part, int32_t token) {
  return part.text == TextTemplate::kNoText && part.token == token;
}

}  // namespace

bool SetBos(int32_t bos, bool wanted, TextTemplates* templates) {
  std::vector<Element>& parts = templates->single.parts;
  if (bos == kNoToken || IsToken(parts.front(), bos) == wanted) return false;
  if (wanted) {
    parts.insert(parts.begin(), {.token = bos});
  } else {
    parts.erase(parts.begin());
  }
  PairSingles(templates);
  return true;
}

bool SetEos(int32_t eos, bool wanted, TextTemplates* templates) {
  std::vector<Element>& parts = templates->single.parts;
  if (eos == kNoToken || IsToken(parts.back(), eos) == wanted) return false;
  if (wanted) {
    parts.push_back({.token = eos});
  } else {
    parts.pop_back();
  }
  PairSingles(templates);
  return true;
}

absl::StatusOr<TextTemplates> ParsePostProcessor(const nlohmann::json* object) {
  absl::Status status;
  std::optional<TextTemplates> templates;
  VisitMembers(
      object, "post_processor", "processors",
      [&](const std::string& type, ObjectReader& fields) {
        std::optional<TextTemplates> outer = Read(type, fields);
        if (!outer) return;
        // How two processors frame a pair together is not defined here.
        templates = !templates ? std::move(*outer)
                               : TextTemplates{Around(outer->single, templates->single), {}};
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return templates.value_or(TextTemplates());
}

}  // namespace sluice::tokenize
