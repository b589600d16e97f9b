#include <limits>

#include "client/command_flags.h"
#include "client/flag_values.h"
#include "client/zero_shot.h"

namespace sluice::client {
namespace {

using Command = Arguments::Command;

constexpr char kTextsHelp[] =
    "The texts; - reads them from standard input, one per line. Put a text that begins with - "
    "after --.";

constexpr char kActivationHelp[] =
    "One of none, softmax, sigmoid; applied to the scores of the labels. Default: the function "
    "that makes probabilities; none for a regression model.";

CLI::App* AddTask(Command which, const char* name, const char* description, const char* footer,
                  Arguments* arguments, CLI::App* app) {
  TaskArguments& own = arguments->task;
  CLI::App* command = AddCommand(name, description, app);
  command->footer(footer);
  AddModelFlags(&own.request, command);
  command->add_flag("--json", own.json, "Print a JSON line for each text.");
  command->callback([=, &own] {
    arguments->command = which;
    own.texts_from_input = own.texts == std::vector<std::string>{"-"};
    if (own.texts_from_input) own.texts.clear();
    EndParseOn(CheckZeroShot(own.zero_shot));
  });
  return command;
}

}  // namespace

void AddTaskCommands(Arguments* arguments, CLI::App* app) {
  TaskArguments& own = arguments->task;
  CLI::App* embed = AddTask(
      Command::kEmbed, "embed", "Show the embeddings of texts.",
      "Example: sluice embed --prompt-name query \"Who opened the gate?\" --json", arguments, app);
  embed->add_option("TEXT", own.texts, Help(kTextsHelp))->required();
  embed->add_flag("--sparse", own.sparse,
                  Help("The terms of the vocabulary with their weights (SPLADE), the heaviest "
                       "first; needs a masked language model."));
  AddParameterFlags({"pooling", "normalize", "dimensions", "max_active_dims", "task", "prompt_name",
                     "truncate", "priority"},
                    &own.request, embed);
  CLI::App* rerank = AddTask(
      Command::kRerank, "rerank", "Order documents by their relevance to a query.",
      "A model that takes pairs and has a classifier of one label (a cross-encoder, or a language\n"
      "model with a pair_frame.json) scores each document with the query. A multi-vector model\n"
      "scores documents by MaxSim. Otherwise documents are ordered by the cosine of embeddings,\n"
      "with the model's prompts \"query\" and \"document\" if it has them.\n"
      "\n"
      "Example: sluice rerank \"Who opened the gate?\" - --top 5 < documents.txt",
      arguments, app);
  rerank->add_option("QUERY", own.query, "The query.")->required();
  rerank->add_option("DOCUMENT", own.texts, Help(kTextsHelp))->required();
  AddFlag("--top", "Show only this many of the best; 0: all. Default 0.", rerank,
          Integer{0, std::numeric_limits<int32_t>::max()}, &own.top);
  AddParameterFlags({"instruction", "truncate", "activation", "priority"}, &own.request, rerank);
  CLI::App* classify = AddTask(
      Command::kClassify, "classify",
      "Show the labels that a classifier gives to texts, with probabilities.",
      "With --candidate-label, a model of natural language inference decides whether each text\n"
      "entails a hypothesis about each label, so the model need not know the labels.\n"
      "\n"
      "Example: sluice classify \"A man sleeps.\" --pair \"A man is awake.\"\n"
      "Example: sluice classify \"The match ended 2:1.\" --candidate-label sport "
      "--candidate-label politics",
      arguments, app);
  classify->add_option("TEXT", own.texts, Help(kTextsHelp))->required();
  classify->add_option("--pair", own.pair,
                       Help("A second text for each, for models that take pairs."));
  AddParameterFlags({"activation", "truncate", "window_overlap", "priority"}, &own.request,
                    classify);
  classify->get_option("--activation")->description(Help(kActivationHelp));
  CLI::Option* const labels =
      classify->add_option("--candidate-label", own.zero_shot.labels,
                           Help("A label that the text may have; repeat it for each label."));
  labels->allow_extra_args(false)->excludes("--pair")->excludes("--activation");
  classify
      ->add_option("--hypothesis", own.zero_shot.hypothesis,
                   Help("The hypothesis about a label, which replaces {}. Default \"This example "
                        "is {}.\"."))
      ->needs(labels);
  classify
      ->add_flag("--multi-label", own.zero_shot.multi_label,
                 Help("Several labels may apply: each has a probability of its own. Without it, "
                      "the probabilities sum to 1."))
      ->needs(labels);
  CLI::App* tag = AddTask(
      Command::kTag, "tag", "Show the entities that a classifier of tokens finds in texts.",
      "Neighbouring tokens with labels of one type, such as B-PER and I-PER, are one entity. Its\n"
      "score is their mean probability.\n"
      "\n"
      "Example: sluice tag \"Ada Lovelace lived in London.\"",
      arguments, app);
  tag->add_option("TEXT", own.texts, Help(kTextsHelp))->required();
  AddParameterFlags({"activation", "truncate", "window_overlap", "priority"}, &own.request, tag);
  tag->get_option("--activation")->description(Help(kActivationHelp));
  CLI::App* extract = AddTask(
      Command::kExtract, "extract", "Show the parts of texts that have one of the given labels.",
      "The model need not know the labels, but must be made for extraction, such as GLiNER.\n"
      "\n"
      "Example: sluice extract \"Ada Lovelace lived in London.\" --labels person --labels city",
      arguments, app);
  extract->add_option("TEXT", own.texts, Help(kTextsHelp))->required();
  AddParameterFlags({"labels", "threshold", "overlap", "multi_label", "truncate", "priority"},
                    &own.request, extract);
}

}  // namespace sluice::client
