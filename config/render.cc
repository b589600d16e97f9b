#include "config/render.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text_wrap.h"

namespace sluice {
namespace {

constexpr size_t kWidth = 96;

constexpr absl::string_view kPreamble =
    R"(# The basic options of sluiced, all at their defaults. Delete lines that you do not change.
# docs/options.md and sluiced --help-all explain each option and list the advanced ones.
#
# Check a file:             sluiced --config FILE --check
# Print effective values:   sluiced --config FILE --print-config

# The models to serve, with names and directories. Directories are relative to this file. The other
# keys are optional. docs/options.md explains them.
#   models:
#     - name: demo
#       path: ../models/demo
#       version: 1
#       quantization: none      # or int8, int4
#       quantize_head: false
#       quantization_group: 64
#       kv_dtype: f32           # or bf16, int8
#       speculation: ngram      # or none, or {draft: NAME, tokens: 8}
#       ladder: {strategy: geometric, ratio: 2}
models: []
)";

// Returns the first sentence of the help and, if there is one, the sentence that explains the
// default value 0 or an empty default.
std::string ShortHelp(const Option& option, absl::string_view value) {
  const absl::string_view help = option.help;
  const auto sentence = [&](size_t from) {
    return help.substr(from, std::min(help.find(". ", from), help.size() - 1) + 1 - from);
  };
  const size_t special = value == "0"         ? help.find(" 0: ")
                         : value == Quote("") ? help.find(" Empty: ")
                                              : help.npos;
  return absl::StrCat(sentence(0), special == help.npos ? "" : " ",
                      special == help.npos ? "" : sentence(special + 1));
}

using OptionFilter = std::function<bool(const Option& option)>;
using OptionWriter = std::function<void(const Option& option, const std::string& indent,
                                        absl::string_view key, std::string* out)>;

// Calls `write` for each option that `is_shown` accepts, with the headings of its sections before
// it. Writes `gap` before each outermost section.
void WriteSections(absl::string_view gap, const OptionFilter& is_shown, const OptionWriter& write,
                   std::string* out) {
  std::vector<std::string> open;
  for (const Option& option : Options()) {
    if (!is_shown(option)) continue;
    std::vector<std::string> sections = absl::StrSplit(option.path, '.');
    const std::string key = sections.back();
    sections.pop_back();
    size_t shared = 0;
    while (shared < std::min(open.size(), sections.size()) && open[shared] == sections[shared]) {
      ++shared;
    }
    for (size_t depth = shared; depth < sections.size(); ++depth) {
      absl::StrAppend(out, depth == 0 ? gap : "", std::string(2 * depth, ' '), sections[depth],
                      ":\n");
    }
    write(option, std::string(2 * sections.size(), ' '), key, out);
    open = std::move(sections);
  }
}

std::string RenderModels(const Config& config, const std::string& origin) {
  if (config.models.empty()) return absl::StrCat("models: []  # ", origin, "\n");
  std::string out = absl::StrCat("models:  # ", origin, "\n");
  for (const ModelSpec& model : config.models) {
    absl::StrAppend(&out, "  - name: ", Quote(model.name), "\n    path: ", Quote(model.path),
                    "\n    version: ", model.version, "\n");
    if (model.quantization != Quantization::kNone) {
      absl::StrAppend(&out, "    quantization: ", std::string(NameOf(model.quantization)),
                      "\n    quantize_head: ", model.quantize_head ? "true" : "false",
                      "\n    quantization_group: ", model.quantization_group, "\n");
    }
    if (model.kv_dtype != KvType::kF32) {
      absl::StrAppend(&out, "    kv_dtype: ", std::string(NameOf(model.kv_dtype)), "\n");
    }
    if (!model.adapters.empty()) {
      absl::StrAppend(&out, "    adapters: ", Quote(model.adapters), "\n");
    }
    if (model.adapter_memory_bytes != ModelSpec().adapter_memory_bytes) {
      absl::StrAppend(&out, "    adapter_memory_bytes: ",
                      OptionSpecOf<ModelSpec>("adapter_memory_bytes").format(model), "\n");
    }
    if (model.speculation != SpeculationOptions()) {
      absl::StrAppend(
          &out, "    speculation: ", Quote(SpeculationValue().Format(model.speculation)), "\n");
    }
    if (model.ladder.empty()) continue;
    absl::StrAppend(&out, "    ladder:\n");
    const LadderOptions ladder = *Apply(model.ladder, {});
    for (const auto& [option, value] : model.ladder) {
      absl::StrAppend(&out, "      ", option, ": ",
                      OptionSpecOf<LadderOptions>(option).format(ladder), "\n");
    }
  }
  return out;
}

}  // namespace

std::string RenderEffectiveConfig(const Config& config, const Origins& origins) {
  std::string out = RenderModels(config, OriginOf(origins, "models"));
  WriteSections(
      "",
      [&](const Option& option) {
        return option.tier != Tier::kTest || origins.contains(option.path);
      },
      [&](const Option& option, const std::string& indent, absl::string_view key,
          std::string* text) {
        absl::StrAppend(text, indent, key, ": ", option.format(config), "  # ",
                        OriginOf(origins, option.path), "\n");
      },
      &out);
  return out;
}

std::string RenderDefaultConfig() {
  std::string out(kPreamble);
  WriteSections(
      "\n", [](const Option& option) { return option.tier == Tier::kBasic; },
      [](const Option& option, const std::string& indent, absl::string_view key,
         std::string* text) {
        const std::string value = option.format(Config());
        if (indent.empty()) absl::StrAppend(text, "\n");
        for (const std::string& line : Wrap(ShortHelp(option, value), kWidth - indent.size() - 2)) {
          absl::StrAppend(text, indent, "# ", line, "\n");
        }
        absl::StrAppend(text, indent, key, ": ", value, "\n");
      },
      &out);
  return out;
}

}  // namespace sluice
