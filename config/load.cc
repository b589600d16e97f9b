#include "config/load.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "config/old_options.h"
#include "config/yaml_document.h"
#include "server/common/option_specs.h"

namespace sluice {
namespace {

// Returns a key of the file in a form that is safe to print in a message.
std::string Shown(const std::string& key) { return absl::CHexEscape(key.substr(0, 80)); }

std::string Got(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return std::string(NameOf(node.kind));
  return Quote(node.scalar.substr(0, 80));
}

// Returns "; did you mean A, or B?" with the options of this name in other sections, or "".
std::string OptionsNamed(const std::string& key) {
  std::vector<std::string> paths;
  for (const Option& option : Options()) {
    if (absl::EndsWith(option.path, absl::StrCat(".", key))) paths.emplace_back(option.path);
  }
  return paths.empty() ? "" : absl::StrCat("; did you mean ", absl::StrJoin(paths, ", or "), "?");
}

std::string Expected(absl::string_view expected, const YamlNode& got) {
  return absl::StrCat("expected ", expected, ", got ", Got(got));
}

// Appends the old keys of a section, and of the ladders of models.
void AppendOldKeys(const std::string& file, const YamlNode& section, const std::string& path,
                   std::vector<std::string>* old) {
  for (const YamlNode& child : section.children) {
    std::string child_path = absl::StrCat(path, path.empty() || child.key.empty() ? "" : ".",
                                          child.key);  // an item of a list has no key
    if (child_path == "models.ladder") child_path = "engine.ladder";
    AppendIfOld(absl::StrCat(file, ":", child.line), child_path, child.scalar, old);
    AppendOldKeys(file, child, child_path, old);
  }
}

// Fills a Config from the tree of one file.
class Loader {
 public:
  Loader(const std::string& file, Config* config, Origins* origins)
      : file_(file), config_(config), origins_(origins) {}

  absl::Status LoadSection(const YamlNode& node, const std::string& path) {
    // A section whose keys are all commented out is null.
    if (node.kind == YamlNode::Kind::kNull) return absl::OkStatus();
    if (node.kind != YamlNode::Kind::kMap) {
      return ErrorAt(node, path.empty() ? "the document" : path, Expected("a map of keys", node));
    }
    for (const YamlNode& child : node.children) {
      SLUICE_RETURN_IF_ERROR(LoadKey(child, path));
    }
    return absl::OkStatus();
  }

 private:
  std::string At(const YamlNode& node) const { return absl::StrCat(file_, ":", node.line); }

  absl::Status ErrorAt(const YamlNode& node, absl::string_view path,
                       absl::string_view problem) const {
    return ConfigError(At(node), path, problem);
  }

  absl::Status LoadKey(const YamlNode& node, const std::string& section) {
    const std::string path = section.empty() ? node.key : absl::StrCat(section, ".", node.key);
    if (const Option* option = FindOption(path)) return LoadOption(*option, node);
    const std::vector<std::string> known = KeysUnder(section);
    if (std::find(known.begin(), known.end(), node.key) == known.end()) {
      std::string hint = Suggestion(node.key, known);
      if (hint.empty()) hint = OptionsNamed(node.key);
      return ErrorAt(node, Shown(path), absl::StrCat("unknown key", hint));
    }
    return path == "models" ? LoadModels(node) : LoadSection(node, path);
  }

  absl::Status LoadOption(const Option& option, const YamlNode& node) {
    std::string text = node.scalar;
    if (node.kind == YamlNode::Kind::kList && option.shape == Shape::kList) {
      SLUICE_ASSIGN_OR_RETURN(text, LoadItems(option, node));
    } else if (node.kind != YamlNode::Kind::kScalar) {
      return ErrorAt(node, option.path, Expected(option.expected, node));
    }
    return SetOption(option, text, At(node), config_, origins_);
  }

  // Returns the items separated by commas. Parses each item separately first, so that an error
  // names the item's line.
  absl::StatusOr<std::string> LoadItems(const Option& option, const YamlNode& list) {
    std::vector<absl::string_view> items;
    for (const YamlNode& item : list.children) {
      Config scratch;
      if (item.kind != YamlNode::Kind::kScalar || !option.parse(item.scalar, &scratch)) {
        return ErrorAt(item, option.path, Expected(option.expected, item));
      }
      items.push_back(item.scalar);
    }
    return absl::StrJoin(items, ",");
  }

  absl::Status LoadModels(const YamlNode& list) {
    if (list.kind != YamlNode::Kind::kList && list.kind != YamlNode::Kind::kNull) {
      return ErrorAt(list, "models", Expected("a list of models", list));
    }
    std::vector<ModelSpec> models;
    for (const YamlNode& item : list.children) {
      const std::string path = absl::StrCat("models[", models.size(), "]");
      if (item.kind != YamlNode::Kind::kMap) {
        return ErrorAt(item, path, Expected("a map with name and path", item));
      }
      ModelSpec& model = models.emplace_back();
      for (const YamlNode& field : item.children) {
        SLUICE_RETURN_IF_ERROR(LoadModelField(field, path, &model));
      }
      if (model.name.empty()) return ErrorAt(item, path, "has no name");
      if (model.path.empty()) return ErrorAt(item, path, "has no path");
      const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
      model.path = (folder / model.path).lexically_normal();
      if (!model.adapters.empty()) model.adapters = (folder / model.adapters).lexically_normal();
    }
    config_->models = std::move(models);
    (*origins_)["models"] = At(list);
    return absl::OkStatus();
  }

  absl::Status LoadModelField(const YamlNode& field, const std::string& model_path,
                              ModelSpec* model) {
    const std::string path = absl::StrCat(model_path, ".", Shown(field.key));
    std::vector<std::string> known;
    for (const OptionSpec<ModelSpec>& spec : OptionSpecs<ModelSpec>()) {
      known.push_back(spec.path);
      if (field.key != spec.path) continue;
      if (field.key == "ladder" && field.kind == YamlNode::Kind::kMap) {
        return LoadLadder(field, path, &model->ladder);
      }
      if (field.key == "speculation" && field.kind == YamlNode::Kind::kMap) {
        return LoadSpeculation(field, path, &model->speculation);
      }
      const bool scalar = field.kind == YamlNode::Kind::kScalar;
      if (scalar && spec.parse(field.scalar, model)) return absl::OkStatus();
      return ErrorAt(field, path, Expected(spec.expected, field));
    }
    return ErrorAt(field, path, absl::StrCat("unknown key", Suggestion(field.key, known)));
  }

  absl::Status LoadSpeculation(const YamlNode& map, const std::string& path,
                               SpeculationOptions* options) {
    for (const YamlNode& entry : map.children) {
      const absl::Status valid = SpeculationValue::Set(entry.key, entry.scalar, options);
      if (!valid.ok()) return ErrorAt(entry, path, valid.message());
    }
    return absl::OkStatus();
  }

  // Reads a model's own options of engine.ladder.
  absl::Status LoadLadder(const YamlNode& map, const std::string& path, LadderChoice* choice) {
    for (const YamlNode& entry : map.children) {
      std::string value = entry.scalar;
      if (entry.kind == YamlNode::Kind::kList) {
        value = absl::StrJoin(entry.children, ",", [](std::string* out, const YamlNode& item) {
          out->append(item.scalar);
        });
      }
      const absl::Status valid = Apply({{entry.key, value}}, {}).status();
      if (!valid.ok()) return ErrorAt(entry, path, valid.message());
      (*choice)[entry.key] = std::move(value);
    }
    return absl::OkStatus();
  }

  const std::string& file_;
  Config* const config_;
  Origins* const origins_;
};

}  // namespace

absl::Status LoadYaml(absl::string_view text, const std::string& file, Config* config,
                      Origins* origins, std::vector<std::string>* old) {
  SLUICE_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file));
  const size_t before = old->size();
  AppendOldKeys(file, root, "", old);
  if (old->size() > before) return absl::OkStatus();
  return Loader(file, config, origins).LoadSection(root, "");
}

absl::Status LoadYamlFile(const std::string& path, Config* config, Origins* origins,
                          std::vector<std::string>* old) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxYamlBytes));
  return LoadYaml(text, path, config, origins, old);
}

absl::StatusOr<ModelSpec> ParseModelSpec(absl::string_view text, const std::string& origin) {
  std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (!absl::StrContains(text, '=')) {
    absl::string_view folder = text;
    while (folder.size() > 1 && absl::ConsumeSuffix(&folder, "/")) continue;
    const absl::string_view name = folder.substr(folder.rfind('/') + 1);
    ModelSpec model;
    if (!OptionSpecOf<ModelSpec>("name").parse(name, &model) || name == "." || name == "..") {
      return ConfigError(origin, "models",
                         absl::StrCat(Quote(text.substr(0, 80)),
                                      " has no name for the model: put NAME= before it"));
    }
    halves = {name, text};
  }
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(halves.first, absl::MaxSplits(':', 1));
  const bool versioned = absl::StrContains(text, '=') && absl::StrContains(halves.first, ':');
  ModelSpec model;
  const auto set = [&](absl::string_view member, absl::string_view value,
                       absl::string_view heading) {
    const OptionSpec<ModelSpec>& spec = OptionSpecOf<ModelSpec>(member);
    if (spec.parse(value, &model)) return absl::OkStatus();
    return ConfigError(origin, "models",
                       absl::StrCat("expected NAME=DIR or NAME:VERSION=DIR with ", heading,
                                    spec.expected, ", got ", Quote(text.substr(0, 80))));
  };
  SLUICE_RETURN_IF_ERROR(set("name", name.first, ""));
  if (versioned) SLUICE_RETURN_IF_ERROR(set("version", name.second, "VERSION "));
  SLUICE_RETURN_IF_ERROR(set("path", halves.second, ""));
  return model;
}

}  // namespace sluice
