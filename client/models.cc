#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text_wrap.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/message_json.h"
#include "client/response.h"
#include "client/table.h"

namespace sluice::client {
namespace {

using inference::ModelMetadataResponse;
using TensorMetadata = ModelMetadataResponse::TensorMetadata;
using TensorList = google::protobuf::RepeatedPtrField<TensorMetadata>;

constexpr size_t kNameColumn = 13;      // the width of "  returns    "
constexpr size_t kProfileColumns = 16;  // of the table

// A model of the server's index. A model that is not ready has no metadata.
struct Listed {
  inference::RepositoryIndexResponse::ModelIndex index;
  absl::StatusOr<ModelMetadataResponse> metadata;
};

// Returns a property of the model from the server's metadata, or "-".
std::string PropertyOf(const Listed& model, const std::string& name) {
  if (!model.metadata.ok()) return "-";
  const auto found = model.metadata->properties().find(name);
  return found == model.metadata->properties().end() ? "-" : found->second;
}

// Returns the words after the heading, wrapped to kTerminalColumns.
std::string LineText(const char* heading, const std::string& words) {
  std::string text;
  for (const std::string& line : Wrap(words, kTerminalColumns - kNameColumn)) {
    absl::StrAppendFormat(&text, "  %-*s%s\n", static_cast<int>(kNameColumn - 2),
                          text.empty() ? heading : "", line);
  }
  return text;
}

// Returns the names of the tensors after the heading.
std::string NamesText(const char* heading, const TensorList& tensors) {
  return LineText(heading,
                  absl::StrJoin(tensors, ", ", [](std::string* out, const TensorMetadata& tensor) {
                    absl::StrAppend(out, absl::Utf8SafeCHexEscape(tensor.name()));
                  }));
}

// Returns a property for people: a JSON list as its words, and any other text as it is.
std::string ReadableProperty(const std::string& value) {
  const auto list = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return absl::Utf8SafeCHexEscape(value);
  return absl::StrJoin(list, " ", [](std::string* out, const nlohmann::json& word) {
    absl::StrAppend(
        out, absl::Utf8SafeCHexEscape(word.is_string() ? word.get<std::string>() : word.dump()));
  });
}

// Returns the settings that the model's folder determines, and its ignored parts, in lines.
std::string SettingsText(const Listed& model) {
  std::vector<std::string> settings;
  for (const char* const name :
       {"direction", "pooling", "normalize", "truncate", "prompts", "default_prompt"}) {
    const std::string value = PropertyOf(model, name);
    if (value != "-") settings.push_back(absl::StrCat(name, " ", ReadableProperty(value)));
  }
  std::string text;
  if (!settings.empty()) text = LineText("settings", absl::StrJoin(settings, ", "));
  const std::string ignored = PropertyOf(model, "ignored");
  if (ignored != "-")
    absl::StrAppend(&text, LineText("ignored", absl::Utf8SafeCHexEscape(ignored)));
  return text;
}

// Returns the task and the longest row.
std::string TaskText(const Listed& model) {
  const std::string task = PropertyOf(model, "task"), most = PropertyOf(model, "max_positions");
  if (task == "-" || most == "-") return "";
  return LineText("task", absl::Utf8SafeCHexEscape(
                              absl::StrCat(task, ", with rows of up to ", most, " tokens")));
}

// Returns the names in a property after the heading, or nothing without the property.
std::string MoreText(const char* heading, const Listed& model, const std::string& name) {
  const std::string value = PropertyOf(model, name);
  return value == "-" ? ""
                      : LineText(heading, absl::StrCat("on request: ", ReadableProperty(value)));
}

// Returns a table of at most kTerminalColumns, and lines for each model with the texts that have no
// bound: the reason of its state, its kernels, its tensors and its settings.
std::string ModelsText(const std::vector<Listed>& models) {
  Table table({"NAME", "VERSION", "STATE", "PROFILE", "ATTENTION", "READY AFTER"});
  std::string tensors;
  for (const Listed& model : models) {
    const auto& [index, metadata] = model;
    table.AddRow({Shortened(index.name(), 32), Shortened(index.version(), 10),
                  Shortened(index.state(), 11),
                  Shortened(PropertyOf(model, "profile"), kProfileColumns),
                  Shortened(PropertyOf(model, "attention"), 10),
                  Shortened(PropertyOf(model, "ready_after"), 11)});
    const bool has_lines = metadata.ok() || !index.reason().empty();
    if (!has_lines) continue;
    absl::StrAppend(&tensors, "\n", absl::Utf8SafeCHexEscape(index.name()), " ",
                    absl::Utf8SafeCHexEscape(index.version()), "\n",
                    LineText("reason", absl::Utf8SafeCHexEscape(index.reason())));
    if (!metadata.ok()) continue;
    const auto add = [&](const char* name, size_t shown) {
      const std::string value = PropertyOf(model, name);
      if (value.size() <= shown) return;  // the table has it in full
      absl::StrAppend(&tensors, LineText(name, absl::Utf8SafeCHexEscape(value)));
    };
    add("profile", kProfileColumns);
    add("kernels", 1);  // more than "-"
    absl::StrAppend(&tensors, TaskText(model), NamesText("takes", metadata->inputs()),
                    MoreText("", model, "more_inputs"), NamesText("returns", metadata->outputs()),
                    MoreText("", model, "more_outputs"), SettingsText(model));
    if (const std::string dense = PropertyOf(model, "dense_algorithms"); dense != "-") {
      for (const absl::string_view line : absl::StrSplit(dense, '\n')) {
        absl::StrAppend(&tensors, LineText("dense", absl::Utf8SafeCHexEscape(line)));
      }
    }
    const std::string limit = PropertyOf(model, "memory_limit");
    if (limit != "-") absl::StrAppend(&tensors, LineText("limit", absl::Utf8SafeCHexEscape(limit)));
  }
  return table.Render() + tensors;
}

nlohmann::json ModelsJson(const std::vector<Listed>& models) {
  nlohmann::json list = nlohmann::json::array();
  for (const Listed& model : models) {
    nlohmann::json json = ToJson(model.index);
    if (model.metadata.ok()) json["metadata"] = ToJson(*model.metadata);
    list.push_back(std::move(json));
  }
  return {{"models", std::move(list)}};
}

}  // namespace

int RunModels(const Arguments& arguments, const Connection& connection, const Console& console) {
  const auto index = connection.Index();
  if (!index.ok()) return Fail(index.status(), arguments, console);
  const std::string& wanted = arguments.models.model;
  std::vector<Listed> models;
  for (const auto& model : index->models()) {
    if (!wanted.empty() && model.name() != wanted) continue;
    models.push_back({model, connection.Metadata(model.name(), model.version())});
  }
  if (models.empty() && !wanted.empty()) {
    const std::string names =
        absl::StrJoin(index->models(), ", ",
                      [](std::string* out, const auto& model) { out->append(model.name()); });
    return Fail(absl::NotFoundError(absl::StrCat("no model ", wanted, "; there are: ", names)),
                arguments, console);
  }
  *console.out << (arguments.models.json ? JsonLine(ModelsJson(models)) : ModelsText(models));
  return kExitOk;
}

}  // namespace sluice::client
