#include <algorithm>
#include <istream>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/response.h"
#include "client/table.h"
#include "client/task_calls.h"
#include "client/zero_shot.h"

namespace sluice::client {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 40;  // of a text in a table
constexpr size_t kShownValues = 4;  // of an embedding in a table
constexpr size_t kMaxTexts = 100'000;

// Returns the beginning of a text, cut at a character boundary.
std::string Shown(const std::string& text) {
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

// Completes the model's name, and reads the texts from standard input if requested. Prints any
// failure. Returns its exit code, or kExitOk.
int CompleteTask(const Arguments& arguments, const Connection& connection, const Console& console,
                 TaskArguments* task) {
  *task = arguments.task;
  std::string line;
  while (task->texts_from_input && task->texts.size() <= kMaxTexts &&
         std::getline(*console.in, line)) {
    task->texts.push_back(line);
  }
  if (task->texts.empty() || task->texts.size() > kMaxTexts) {
    *console.error << "sluice: there are " << (task->texts.empty() ? "no" : "too many")
                   << " texts; expected 1 to " << kMaxTexts << "\n";
    return kExitUsage;
  }
  return CompleteRequest(*task, arguments, connection, console, &task->request);
}

int RunSparse(const TaskArguments& task, const Arguments& arguments, const Connection& connection,
              const Console& console) {
  const auto rows = SparseTerms(connection, task.request, task.texts);
  if (!rows.ok()) return Fail(rows.status(), arguments, console);
  Table table({"TEXT", "TERMS", "HEAVIEST"});
  for (size_t i = 0; i < task.texts.size(); ++i) {
    json ids = json::array(), weights = json::array();
    std::string first;
    for (const Term& term : (*rows)[i]) {
      if (ids.size() < kShownValues) {
        absl::StrAppendFormat(&first, "%s%d:%.6f", ids.empty() ? "" : " ", term.id, term.weight);
      }
      ids.push_back(term.id);
      weights.push_back(term.weight);
    }
    if (task.json) {
      *console.out << JsonLine(
          {{"text", task.texts[i]}, {"sparse_ids", ids}, {"sparse_weights", weights}});
      continue;
    }
    table.AddRow({Shown(task.texts[i]), absl::StrCat(ids.size()), first});
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

int RunZeroShot(const TaskArguments& task, const Arguments& arguments, const Connection& connection,
                const Console& console) {
  const auto found = ZeroShot(connection, task.request, task.zero_shot, task.texts);
  if (!found.ok()) return Fail(found.status(), arguments, console);
  Table table({"LABEL", "SCORE", "TEXT"});
  for (size_t i = 0; i < task.texts.size(); ++i) {
    json line = {{"text", task.texts[i]}, {"labels", json::array()}, {"scores", json::array()}};
    for (const auto& [label, score] : (*found)[i]) {
      line["labels"].push_back(label);
      line["scores"].push_back(score);
      table.AddRow({label, absl::StrFormat("%.6f", score), Shown(task.texts[i])});
    }
    if (task.json) *console.out << JsonLine(line);
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

int ShowEntities(const TaskArguments& task, const std::vector<std::vector<Entity>>& entities,
                 const Console& console) {
  Table table({"TYPE", "SCORE", "BYTES", "ENTITY", "TEXT"});
  for (size_t i = 0; i < task.texts.size(); ++i) {
    const std::string& text = task.texts[i];
    json line = {{"text", text}, {"entities", json::array()}};
    for (const Entity& entity : entities[i]) {
      const size_t begin = std::min(text.size(), static_cast<size_t>(entity.begin));
      const std::string part = text.substr(begin, std::max(entity.end - entity.begin, 0));
      line["entities"].push_back({{"type", entity.type},
                                  {"score", entity.score},
                                  {"begin", entity.begin},
                                  {"end", entity.end},
                                  {"text", part}});
      table.AddRow({entity.type, absl::StrFormat("%.6f", entity.score),
                    absl::StrCat(entity.begin, "-", entity.end), Shown(part), Shown(text)});
    }
    if (task.json) *console.out << JsonLine(line);
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

}  // namespace

int RunEmbed(const Arguments& arguments, const Connection& connection, const Console& console) {
  TaskArguments task;
  const int code = CompleteTask(arguments, connection, console, &task);
  if (code != kExitOk) return code;
  if (task.sparse) return RunSparse(task, arguments, connection, console);
  const auto rows =
      CallForTexts(connection, {.request = task.request, .output = "embedding"}, task.texts);
  if (!rows.ok()) return Fail(rows.status(), arguments, console);
  Table table({"TEXT", "VALUES", "FIRST VALUES"});
  for (size_t i = 0; i < task.texts.size(); ++i) {
    const std::vector<float>& values = rows->values[i];
    if (task.json) {
      *console.out << JsonLine({{"text", task.texts[i]}, {"embedding", values}});
      continue;
    }
    std::string first;
    for (size_t j = 0; j < std::min(values.size(), kShownValues); ++j) {
      absl::StrAppendFormat(&first, "%s%.6f", j == 0 ? "" : " ", values[j]);
    }
    table.AddRow({Shown(task.texts[i]), absl::StrCat(values.size()), first});
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

int RunRerank(const Arguments& arguments, const Connection& connection, const Console& console) {
  TaskArguments task;
  const int code = CompleteTask(arguments, connection, console, &task);
  if (code != kExitOk) return code;
  const auto scores = Relevances(connection, task.request, task.query, task.texts);
  if (!scores.ok()) return Fail(scores.status(), arguments, console);
  std::vector<size_t> order(task.texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*scores)[a] > (*scores)[b]; });
  if (task.top > 0) order.resize(std::min<size_t>(order.size(), task.top));
  Table table({"RANK", "SCORE", "DOCUMENT", "TEXT"});
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const size_t document = order[rank];
    const double score = (*scores)[document];
    if (task.json) {
      *console.out << JsonLine(
          {{"document", document}, {"score", score}, {"text", task.texts[document]}});
      continue;
    }
    table.AddRow({absl::StrCat(rank + 1), absl::StrFormat("%.6f", score), absl::StrCat(document),
                  Shown(task.texts[document])});
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

int RunClassify(const Arguments& arguments, const Connection& connection, const Console& console) {
  TaskArguments task;
  const int code = CompleteTask(arguments, connection, console, &task);
  if (code != kExitOk) return code;
  if (!task.zero_shot.labels.empty()) return RunZeroShot(task, arguments, connection, console);
  const auto rows = Classify(connection, task.request, task.texts, task.pair);
  if (!rows.ok()) return Fail(rows.status(), arguments, console);
  Table table({"LABEL", "SCORE", "TEXT"});
  for (size_t i = 0; i < task.texts.size(); ++i) {
    const std::vector<float>& scores = rows->values[i];
    const auto best = std::max_element(scores.begin(), scores.end());
    const auto label = best - scores.begin();
    json line = {{"text", task.texts[i]}, {"label", label}, {"scores", scores}};
    if (!rows->labels.empty()) line["name"] = rows->labels[i];
    if (task.json) {
      *console.out << JsonLine(line);
      continue;
    }
    table.AddRow({rows->labels.empty() ? absl::StrCat(label) : rows->labels[i],
                  absl::StrFormat("%.6f", scores.empty() ? 0.0 : *best), Shown(task.texts[i])});
  }
  if (!task.json) *console.out << table.Render();
  return kExitOk;
}

int RunTag(const Arguments& arguments, const Connection& connection, const Console& console) {
  TaskArguments task;
  const int code = CompleteTask(arguments, connection, console, &task);
  if (code != kExitOk) return code;
  const auto tokens = LabelTokens(connection, task.request, task.texts);
  if (!tokens.ok()) return Fail(tokens.status(), arguments, console);
  std::vector<std::vector<Entity>> entities;
  for (const std::vector<LabelledToken>& row : *tokens) entities.push_back(EntitiesOf(row));
  return ShowEntities(task, entities, console);
}

int RunExtract(const Arguments& arguments, const Connection& connection, const Console& console) {
  TaskArguments task;
  const int code = CompleteTask(arguments, connection, console, &task);
  if (code != kExitOk) return code;
  const auto entities = ExtractEntities(connection, task.request, task.texts);
  if (!entities.ok()) return Fail(entities.status(), arguments, console);
  return ShowEntities(task, *entities, console);
}

}  // namespace sluice::client
