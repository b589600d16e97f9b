#include "engine/model/tokenizer/steps.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::tokenize {
namespace {

// The bound on all members of one part together, so that no file makes encoding arbitrarily slow.
constexpr int kMaxMembers = 64;
constexpr size_t kMaxPatternBytes = 65536;

using Visit = std::function<void(const std::string& type, ObjectReader& fields)>;

class Visitor {
 public:
  Visitor(const char* list_key, const Visit* visit, absl::Status* status)
      : list_key_(list_key), visit_(visit), status_(status) {}

  void Walk(const nlohmann::json& object, const std::string& path) {
    if (!status_->ok()) return;
    if (!object.is_object()) {
      status_->Update(absl::InvalidArgumentError(absl::StrCat(path, " is not an object")));
      return;
    }
    ObjectReader fields(object, absl::StrCat(path, "."), status_);
    const std::string type = fields.String("type", kMaxTypeBytes);
    if (type == "Sequence") {
      WalkList(fields);
    } else if (++members_ > kMaxMembers) {
      fields.Fail("type", absl::StrCat("is one of more than ", kMaxMembers, " steps"));
    } else if (status_->ok()) {
      (*visit_)(type, fields);
    }
  }

 private:
  void WalkList(ObjectReader& fields) {
    const nlohmann::json* list = fields.Find(list_key_);
    if (list == nullptr || !list->is_array()) {
      fields.Fail(list_key_, "is not a list");
      return;
    }
    for (size_t i = 0; i < list->size() && status_->ok(); ++i) {
      Walk((*list)[i], absl::StrCat(fields.PathOf(list_key_), "[", i, "]"));
    }
  }

  const char* list_key_;
  const Visit* visit_;
  absl::Status* status_;
  int members_ = 0;
};

}  // namespace

void VisitMembers(const nlohmann::json* object, const std::string& path, const char* list_key,
                  const Visit& visit, absl::Status* status) {
  if (object != nullptr) Visitor(list_key, &visit, status).Walk(*object, path);
}

std::shared_ptr<const Pattern> ReadPattern(const std::string& key, ObjectReader& fields,
                                           SearchLimit limit) {
  ObjectReader pattern = fields.Object(key);
  if (!pattern.Has("Regex")) {
    std::string literal = pattern.String("String", kMaxPatternBytes);
    // The library searches for texts with a regular expression too.
    if (literal.empty()) return *MakeRegexPattern("", limit);
    return MakeLiteralPattern(std::move(literal));
  }
  auto regex = MakeRegexPattern(pattern.String("Regex", kMaxPatternBytes), limit);
  if (regex.ok()) return *std::move(regex);
  pattern.Fail("Regex", std::string(regex.status().message()));
  return nullptr;
}

}  // namespace sluice::tokenize
