#include "config/render.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text_wrap.h"

namespace sluice {
namespace {

constexpr size_t kWidth = 96;

constexpr absl::string_view kPreamble =
    R"(# The options of sluiced, all at their defaults. Delete what you do not change.
#
# Check a file:          sluiced --config FILE --check
# See what is in effect: sluiced --config FILE --print-config
#
# Every option can also be given as a flag or in the environment: engine.batch.max_batch_tokens is
# --engine.batch.max-batch-tokens and SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS. A flag wins over the
# environment, that over this file, and this file over the default. An unknown or duplicate key, a
# wrong type or a value out of its range is an error. A reload applies the options that say so; the
# others need a restart.

# The models to serve, each with a name (A-Z a-z 0-9 _ . -, at most 128), the path of its directory
# (config.json, model.safetensors; relative to this file) and a version (an integer from 1 on,
# 1 where it is left out). quantization: int8 multiplies its projections in int8; on a CPU, int4
# multiplies by weights in int4 in groups of quantization_group rows (32, 64 or 128), and
# quantize_head: true its head in int8 as well; none, the default, leaves that to config.json.
# kv_dtype: bf16 or int8 is the type of its KV pages on a CPU; f32, the default, leaves that to
# config.json. ladder: options of engine.ladder that this model has in place of those below. As a
# flag: --model NAME=DIR or NAME:VERSION=DIR, repeatable; in the environment: SLUICE_MODELS,
# comma-separated. A reload (SIGHUP, sluice reload) applies it.
#
#   models:
#     - name: demo
#       path: ../models/demo
#       version: 1
#       quantization: none
#       quantize_head: false
#       quantization_group: 64
#       kv_dtype: f32
#       ladder: {strategy: geometric, ratio: 2}
models: []
)";

using OptionWriter = std::function<void(const Option& option, const std::string& indent,
                                        absl::string_view key, std::string* out)>;

// Calls `write` for each option, with the headings of its sections before it. Writes `gap` before
// each outermost section.
void WriteSections(absl::string_view gap, const OptionWriter& write, std::string* out) {
  std::vector<std::string> open;
  for (const Option& option : Options()) {
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
      "\n",
      [](const Option& option, const std::string& indent, absl::string_view key,
         std::string* text) {
        const std::string value = option.format(Config());
        std::string limits = absl::StrCat(option.expected, "; default ", value, ".");
        limits[0] = absl::ascii_toupper(limits[0]);
        if (indent.empty()) absl::StrAppend(text, "\n");
        for (const std::string& paragraph : {HelpOf(option), limits}) {
          for (const std::string& line : Wrap(paragraph, kWidth - indent.size() - 2)) {
            absl::StrAppend(text, indent, "# ", line, "\n");
          }
        }
        absl::StrAppend(text, indent, key, ": ", value, "\n");
      },
      &out);
  return out;
}

}  // namespace sluice
