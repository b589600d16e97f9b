#include "client/task_flags.h"

#include <limits>

#include "base/option_value.h"
#include "base/status_macros.h"
#include "client/flag_values.h"

namespace sluice::client {
namespace {

constexpr Integer kTop{0, std::numeric_limits<int32_t>::max()};
constexpr char kTextsHelp[] =
    "The texts; - reads them from standard input, one a line. One that begins with - goes after "
    "--.";

CLI::App* AddTask(const char* name, const char* description, const char* footer, TaskFlags* flags,
                  CLI::App* app) {
  CLI::App* command = AddCommand(name, description, app);
  command->footer(footer);
  command->add_option("--model", flags->model,
                      Help("The model; may be left out when the server has only one."));
  command->add_option("--model-version", flags->model_version, "Default: the highest.");
  command->add_flag("--json", flags->json, "Print a JSON line for each text.");
  return command;
}

absl::Status ReadTask(const TaskFlags& flags, TaskArguments* task) {
  task->json = flags.json;
  task->query = flags.query;
  task->pair = flags.pair;
  task->sparse = flags.sparse;
  task->texts = flags.texts;
  task->texts_from_input = flags.texts == std::vector<std::string>{"-"};
  if (task->texts_from_input) task->texts.clear();
  task->request.set_model_name(flags.model);
  task->request.set_model_version(flags.model_version);
  SLUICE_RETURN_IF_ERROR(ReadFlag("--top", kTop, flags.top, &task->top));
  return SetParameters(flags.parameters, &task->request);
}

}  // namespace

void AddTaskCommands(TasksFlags* flags, CLI::App* app) {
  CLI::App* embed =
      AddTask("embed", "Show the embeddings of texts.",
              "Example: sluice embed --prompt-name query \"Who opened the gate?\" --json",
              &flags->embed, app);
  embed->add_option("TEXT", flags->embed.texts, Help(kTextsHelp))->required();
  embed->add_flag("--sparse", flags->embed.sparse,
                  Help("The terms of the vocabulary with their weights (SPLADE), the heaviest "
                       "first, of a masked language model."));
  AddParameterFlags({"pooling", "normalize", "dimensions", "max_active_dims", "prompt_name",
                     "truncate", "priority"},
                    &flags->embed.parameters, embed);

  CLI::App* rerank = AddTask(
      "rerank", "Order documents by their relevance to a query.",
      "A model that takes pairs and has a classifier of one label (a cross-encoder) scores each\n"
      "document with the query; otherwise cosines of embeddings are compared, with the model's\n"
      "prompts \"query\" and \"document\" where it has them.\n"
      "\n"
      "Example: sluice rerank \"Who opened the gate?\" - --top 5 < documents.txt",
      &flags->rerank, app);
  rerank->add_option("QUERY", flags->rerank.query, "The query.")->required();
  rerank->add_option("DOCUMENT", flags->rerank.texts, Help(kTextsHelp))->required();
  rerank->add_option("--top", flags->rerank.top, Help("Show the best so many; 0: all. Default 0."));
  AddParameterFlags({"truncate", "activation", "priority"}, &flags->rerank.parameters, rerank);

  CLI::App* classify =
      AddTask("classify", "Show the labels that a classifier gives to texts.",
              "Example: sluice classify \"A man sleeps.\" --pair \"A man is awake.\"",
              &flags->classify, app);
  classify->add_option("TEXT", flags->classify.texts, Help(kTextsHelp))->required();
  classify->add_option("--pair", flags->classify.pair,
                       Help("A second text beside each, for models of pairs."));
  AddParameterFlags({"activation", "truncate", "window_overlap", "priority"},
                    &flags->classify.parameters, classify);

  CLI::App* tag = AddTask(
      "tag", "Show the entities that a classifier of tokens finds in texts.",
      "Neighbouring tokens with labels of one type, such as B-PER and I-PER, are one entity. Its\n"
      "score is their mean probability.\n"
      "\n"
      "Example: sluice tag \"Ada Lovelace lived in London.\"",
      &flags->tag, app);
  tag->add_option("TEXT", flags->tag.texts, Help(kTextsHelp))->required();
  AddParameterFlags({"activation", "truncate", "window_overlap", "priority"},
                    &flags->tag.parameters, tag);
}

absl::Status ReadTaskCommand(const TasksFlags& flags, const CLI::App& command,
                             Arguments* arguments) {
  if (command.get_name() == "embed") {
    arguments->command = Arguments::Command::kEmbed;
    return ReadTask(flags.embed, &arguments->task);
  }
  if (command.get_name() == "rerank") {
    arguments->command = Arguments::Command::kRerank;
    return ReadTask(flags.rerank, &arguments->task);
  }
  if (command.get_name() == "classify") {
    arguments->command = Arguments::Command::kClassify;
    return ReadTask(flags.classify, &arguments->task);
  }
  if (command.get_name() == "tag") {
    arguments->command = Arguments::Command::kTag;
    return ReadTask(flags.tag, &arguments->task);
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
