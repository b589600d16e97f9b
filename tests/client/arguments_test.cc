#include "client/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/parameter.h"
#include "tests/support/table.h"

namespace sluice::client {
namespace {

using testing::HasSubstr;
using Command = Arguments::Command;

absl::StatusOr<Arguments> Parse(std::vector<const char*> arguments, const char* server = nullptr,
                                const char* admin = nullptr) {
  arguments.insert(arguments.begin(), "sluice");
  return ParseArguments(static_cast<int>(arguments.size()), arguments.data(),
                        [&](const std::string& name) -> const char* {
                          if (name == "SLUICE_ADMIN") return admin;
                          return name == "SLUICE_SERVER" ? server : nullptr;
                        });
}

TEST(ParseArguments, ReadsTheCommandsThatManageADaemon) {
  const auto load = Parse({"load", "m", "--model-version", "3"});
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->command, Command::kLoad);
  EXPECT_EQ(load->manage.model, "m");
  EXPECT_EQ(load->manage.model_version, 3);
  EXPECT_EQ(load->deadline_us, 0) << "loading has no time limit";
  EXPECT_EQ(Parse({"unload", "m"})->manage.model_version, 0);
  EXPECT_EQ(Parse({"reload", "--json"})->command, Command::kReload);
  EXPECT_FALSE(Parse({"load"}).ok());
  EXPECT_THAT(std::string(Parse({"load", "m", "--model-version", "0"}).status().message()),
              HasSubstr("--model-version"));
}

TEST(ParseArguments, WordsInBracketsAreNotTakenForLists) {
  using Texts = std::vector<std::string>;
  const auto embed = Parse({"embed", "[CLS] Hello, world [SEP]", "[]", "[a,b", "plain"});
  ASSERT_TRUE(embed.ok()) << embed.status();
  EXPECT_EQ(embed->task.texts, (Texts{"[CLS] Hello, world [SEP]", "[]", "[a,b", "plain"}));
  const auto rerank = Parse({"rerank", "[who, when]", "[a, b]", "[c]"});
  ASSERT_TRUE(rerank.ok()) << rerank.status();
  EXPECT_EQ(rerank->task.query, "[who, when]");
  EXPECT_EQ(rerank->task.texts, (Texts{"[a, b]", "[c]"}));
  const auto labels =
      Parse({"classify", "[a, b]", "--candidate-label", "[x, y]", "--candidate-label=[z, z]"});
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ(labels->task.texts, (Texts{"[a, b]"}));
  EXPECT_EQ(labels->task.zero_shot.labels, (Texts{"[x, y]", "[z, z]"}));
  const auto pair = Parse({"classify", "--pair", "[p, q]", "[a, b]"});
  EXPECT_EQ(pair->task.pair, "[p, q]");
  EXPECT_EQ(pair->task.texts, (Texts{"[a, b]"}));
  EXPECT_EQ(Parse({"tag", "--", "[a, b]", "-[c, d]"})->task.texts, (Texts{"[a, b]", "-[c, d]"}));
  const auto extract = Parse({"extract", "[a, b]", "--labels", "[x, y]"});
  EXPECT_EQ(extract->task.texts, (Texts{"[a, b]"}));
  EXPECT_EQ(extract->task.request.parameters().at("labels").string_param(), "[\"[x, y]\"]");
  EXPECT_EQ(Parse({"infer", "--file", "[f]"})->infer.file, "[f]");
  EXPECT_THAT(std::string(Parse({"models", "[a, b]"}).status().message()),
              HasSubstr("unexpected: [a, b]"));
}

TEST(ParseArguments, FlagsThatNeedTlsImplyIt) {
  EXPECT_FALSE(Parse({"models"})->connection.tls);
  EXPECT_TRUE(Parse({"models", "--tls"})->connection.tls);
  EXPECT_TRUE(Parse({"models", "--server-name", "s"})->connection.tls);
  const auto arguments = Parse({"--ca=a.pem", "--cert=c.pem", "--key=k.pem", "models"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_TRUE(arguments->connection.tls);
  EXPECT_EQ(arguments->connection.ca, "a.pem");
  EXPECT_EQ(arguments->connection.key, "k.pem");
  EXPECT_THAT(std::string(Parse({"models", "--cert=c.pem"}).status().message()),
              HasSubstr("--key: missing"));
  EXPECT_THAT(std::string(Parse({"models", "--key=c.pem"}).status().message()),
              HasSubstr("--cert: missing"));
}

TEST(ParseArguments, ATokenHasOnlyCharactersThatMetadataAllows) {
  EXPECT_EQ(Parse({"models", "--token=abc"})->connection.token, "abc");
  EXPECT_FALSE(Parse({"models", "--token=abc"})->connection.tls);
  for (const char* bad : {"a b", "a\nb", "\x80"}) {
    EXPECT_THAT(std::string(Parse({"models", "--token", bad}).status().message()),
                HasSubstr("--token: expected printable"));
  }
}

TEST(ParseArguments, AdminCommandsUseTheAdminAddress) {
  EXPECT_EQ(Parse({"review"})->server, "localhost:8003");
  EXPECT_EQ(Parse({"review"}, "far:9001")->server, "far:8003");
  EXPECT_EQ(Parse({"buckets"}, "far:9001", "near:1")->server, "near:1");
  EXPECT_EQ(Parse({"--admin=h:7", "explain", "x"}, "far:9001", "near:1")->server, "h:7");
  EXPECT_EQ(Parse({"explain", "x", "--server=h:7"}, "far:9001")->server, "h:8003");
  EXPECT_EQ(Parse({"models", "--admin=h:7"}, "far:9001")->server, "far:9001");
  EXPECT_THAT(std::string(Parse({"buckets", "--admin=h"}).status().message()),
              HasSubstr("--admin: expected HOST:PORT"));
  EXPECT_THAT(std::string(Parse({"buckets"}, "a:1", "h").status().message()),
              HasSubstr("SLUICE_ADMIN: expected HOST:PORT"));
  EXPECT_EQ(Parse({"models"}, "far:9001", "near:1")->server, "far:9001");
}

TEST(ParseArguments, EachAddressHasItsOwnScheme) {
  // The flags are for the server of SLUICE_SERVER. The admin address has no TLS by default, and a
  // token for a connection with TLS is not sent there.
  const auto plain = Parse({"buckets", "--ca=a.pem", "--token=abc"}, "far:9001");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->connection.tls);
  EXPECT_EQ(plain->connection.token, "");
  ASSERT_TRUE(plain->daemon.has_value());
  EXPECT_EQ(plain->daemon->address, "far:9001");
  EXPECT_TRUE(plain->daemon->connection.tls);
  EXPECT_EQ(plain->daemon->connection.token, "abc");
  const auto secured = Parse({"buckets", "--ca=a.pem", "--token=abc"}, "f:1", "https://g:2");
  ASSERT_TRUE(secured.ok()) << secured.status();
  EXPECT_EQ(secured->server, "g:2");
  EXPECT_TRUE(secured->connection.tls);
  EXPECT_EQ(secured->connection.ca, "a.pem");
  EXPECT_EQ(secured->connection.token, "abc");
  const auto named = Parse({"buckets", "--ca=a.pem", "--admin=https://h:3"}, "f:1");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_TRUE(named->connection.tls);
  EXPECT_FALSE(named->daemon.has_value());
  EXPECT_TRUE(Parse({"models"}, "https://f:1")->connection.tls);
  EXPECT_FALSE(Parse({"models", "--tls"}, "http://f:1")->connection.tls);
  EXPECT_EQ(Parse({"buckets", "--token=abc"}, "f:1")->connection.token, "abc");
}

TEST(ParseArguments, TheDaemonOfAnAdminCommandIsTheNamedServer) {
  EXPECT_FALSE(Parse({"reload"})->daemon.has_value());
  EXPECT_EQ(Parse({"reload"}, "f:1")->daemon->address, "f:1");
  EXPECT_FALSE(Parse({"reload", "--admin=g:2"}, "f:1")->daemon.has_value());
  EXPECT_EQ(Parse({"reload", "--admin=g:2", "--server=h:3"}, "f:1")->daemon->address, "h:3");
  EXPECT_TRUE(Parse({"reload"})->calls_admin);
  EXPECT_TRUE(Parse({"--admin=h:3", "explain", "r"})->calls_admin);
  EXPECT_FALSE(Parse({"models"})->calls_admin);
  EXPECT_TRUE(Parse({"reload"})->chosen_admin);
  EXPECT_FALSE(Parse({"--admin=h:3", "reload"})->chosen_admin);
  EXPECT_FALSE(Parse({"models"}, "f:1")->chosen_admin);
}

TEST(ParseArguments, ReadsTheFlagsOfInfer) {
  const auto arguments = Parse({"infer",
                                "--text",
                                "hi",
                                "--model",
                                "m",
                                "--model-version",
                                "2",
                                "--id",
                                "r",
                                "--max-tokens",
                                "64",
                                "--temperature=0.5",
                                "--top-k=40",
                                "--top-p=0.9",
                                "--min-p=0.1",
                                "--seed=7",
                                "--num-top=3",
                                "--priority=1",
                                "--timeout=5ms",
                                "--outputs",
                                "logits,top_ids",
                                "--json"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_EQ(arguments->command, Command::kInfer);
  EXPECT_EQ(arguments->server, "localhost:8001");
  EXPECT_EQ(arguments->deadline_us, 60'000'000);
  EXPECT_TRUE(arguments->infer.json);
  EXPECT_EQ(arguments->infer.concurrency, 8);
  const auto& request = arguments->infer.request;
  EXPECT_EQ(request.model_name(), "m");
  EXPECT_EQ(request.model_version(), "2");
  EXPECT_EQ(request.id(), "r");
  EXPECT_EQ(request.inputs(0).name(), "text_input");
  EXPECT_EQ(request.parameters().size(), 9);
  EXPECT_EQ(request.parameters().at("num_top_logprobs").int64_param(), 3);
  EXPECT_EQ(request.parameters().at("timeout").int64_param(), 5000);
  ASSERT_EQ(request.outputs_size(), 2);
  EXPECT_EQ(request.outputs(1).name(), "top_ids");
}

TEST(ParseArguments, EveryParameterHasItsFlagInBothCommands) {
  for (const char* command : {"infer", "generate"}) {
    for (const ParameterInfo* info : Parameters()) {
      if (info->kind() == ParameterKind::kSwitch) continue;
      const std::string flag = FlagOf(*info);
      const absl::Status status = Parse({command, "--text=a", flag.c_str(), "\xff"}).status();
      EXPECT_THAT(
          std::string(status.message()),
          testing::StartsWith(flag + ": " + std::string(info->client_name) + ": expected "));
    }
  }
}

TEST(ParseArguments, ReadsTheFlagsOfGenerate) {
  const auto plain = Parse({"generate", "--text", "-"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->command, Command::kGenerate);
  EXPECT_EQ(plain->deadline_us, 0);
  EXPECT_TRUE(plain->generate.text_from_input);
  EXPECT_EQ(plain->generate.request.inputs_size(), 0);
  EXPECT_EQ(plain->generate.request.parameters().at("max_tokens").int64_param(), 64);
  EXPECT_FALSE(plain->generate.json || plain->generate.verbose);

  const auto all =
      Parse({"generate", "--ids=1,2", "--max-tokens=5", "--stop=a", "--stop", "b", "--ignore-eos",
             "--logit-bias=3=ban", "--json", "--outputs=logprobs", "--verbose", "--deadline=5s"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->deadline_us, 5'000'000);
  EXPECT_TRUE(all->generate.json && all->generate.verbose);
  const auto& parameters = all->generate.request.parameters();
  EXPECT_EQ(parameters.at("max_tokens").int64_param(), 5);
  EXPECT_EQ(parameters.at("stop").string_param(), "[\"a\",\"b\"]");
  EXPECT_TRUE(parameters.at("ignore_eos").bool_param());
  EXPECT_EQ(parameters.at("logit_bias").string_param(), "{\"3\":null}");
  EXPECT_EQ(parameters.size(), 4);
}

TEST(ParseArguments, GenerateTakesThePromptAsAnArgument) {
  const auto with_flag = Parse({"generate", "--text", "Once upon a time", "--max-tokens=5"});
  ASSERT_TRUE(with_flag.ok()) << with_flag.status();
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"generate", "Once upon a time", "--max-tokens=5"},
        std::vector<const char*>{"generate", "--max-tokens", "5", "Once upon a time"},
        std::vector<const char*>{"generate", "--max-tokens=5", "--", "Once upon a time"}}) {
    const auto without = Parse(words);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(without->generate.request.SerializeAsString(),
              with_flag->generate.request.SerializeAsString());
  }
  EXPECT_TRUE(Parse({"generate", "-"})->generate.text_from_input);
  EXPECT_THAT(Parse({"generate", "--", "-5 degrees"})->generate.request.ShortDebugString(),
              HasSubstr("-5 degrees"));
  // The name of a command is a valid prompt.
  EXPECT_THAT(Parse({"generate", "models"})->generate.request.ShortDebugString(),
              HasSubstr("models"));
  EXPECT_THAT(Parse({"generate", "--help"})->text, HasSubstr("PROMPT"));
}

TEST(ParseArguments, ReadsTheFlagsOfOtherCommands) {
  const auto file = Parse({"infer", "--file", "-", "--concurrency", "3"});
  EXPECT_EQ(file->infer.file, "-");
  EXPECT_EQ(file->infer.concurrency, 3);
  EXPECT_EQ(file->infer.request.inputs_size(), 0);
  EXPECT_EQ(Parse({"models"})->command, Command::kModels);
  const auto stats = Parse({"stats", "--model", "m", "--metrics-address", "none"});
  EXPECT_EQ(stats->command, Command::kStats);
  EXPECT_EQ(stats->stats.model, "m");
  EXPECT_EQ(stats->stats.metrics_address, "");
  EXPECT_EQ(Parse({"stats"})->stats.metrics_address, "localhost:8002");
  EXPECT_EQ(Parse({"stats", "--server=[::1]:80"})->stats.metrics_address, "[::1]:8002");
  EXPECT_EQ(Parse({"health", "--service", "sluice.liveness"})->health.service, "sluice.liveness");
}

TEST(ParseArguments, ReadsTheCandidateLabelsOfClassify) {
  const auto one = Parse({"classify", "text", "--candidate-label", "a b", "--candidate-label=c"});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->task.texts, std::vector<std::string>{"text"});
  EXPECT_EQ(one->task.zero_shot.labels, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(one->task.zero_shot.hypothesis, "This example is {}.");
  EXPECT_FALSE(one->task.zero_shot.multi_label);
  const auto other =
      Parse({"classify", "text", "--candidate-label=c", "--hypothesis=Is it {}?", "--multi-label"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->task.zero_shot.hypothesis, "Is it {}?");
  EXPECT_TRUE(other->task.zero_shot.multi_label);
  EXPECT_TRUE(Parse({"classify", "text", "--pair=a"})->task.zero_shot.labels.empty());
}

TEST(ParseArguments, ReadsTheFlagsOfBucketCommands) {
  const auto buckets = Parse({"buckets", "--model=m", "--model-version=2", "--watch=5", "--json"});
  ASSERT_TRUE(buckets.ok()) << buckets.status();
  EXPECT_EQ(buckets->command, Command::kBuckets);
  EXPECT_EQ(buckets->buckets.model, "m");
  EXPECT_EQ(buckets->buckets.model_version, "2");
  EXPECT_EQ(buckets->buckets.watch_us, 5'000'000);
  EXPECT_TRUE(buckets->buckets.json);
  EXPECT_EQ(Parse({"buckets"})->buckets.watch_us, 0);
  EXPECT_EQ(Parse({"buckets", "--watch"})->buckets.watch_us, 2'000'000);
  EXPECT_TRUE(Parse({"buckets", "--watch", "--advise"})->buckets.advise);
  EXPECT_TRUE(Parse({"review", "--force"})->review.force);
  EXPECT_EQ(Parse({"explain", "r-1", "--server=a:1"})->explain.request_id, "r-1");
  const auto fit = Parse({"fit", "--lengths=f", "--column=n", "--clip", "--max-buckets=3"});
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->command, Command::kFit);
  EXPECT_EQ(fit->fit.batch.max_batch_tokens, 4096);
  EXPECT_EQ(fit->fit.ladder.max_buckets, 3);
  EXPECT_EQ(fit->fit.token_us, 0.04);
  EXPECT_TRUE(fit->fit.clip);
  EXPECT_EQ(fit->fit.load, 0.85);
  // With --us-per-computed-token the other costs are 0. A journal has its own costs.
  const auto computed = Parse({"fit", "--trace=f", "--us-per-computed-token=2", "--strategy=all"});
  ASSERT_TRUE(computed.ok()) << computed.status();
  EXPECT_EQ(computed->fit.token_us, 0);
  EXPECT_EQ(computed->fit.computed_token_us, 2);
  EXPECT_EQ(computed->fit.load, 0) << "the recorded times";
  EXPECT_EQ(fit->fit.rows, DeviceRows::kLibrary);
  EXPECT_EQ(fit->fit.capture_ms, 0.6);
  EXPECT_EQ(computed->fit.rows, DeviceRows::kBatch);
  EXPECT_EQ(computed->fit.capture_ms, 0);
  EXPECT_EQ(Parse({"fit", "--journal=f"})->fit.step_us, 0);
  EXPECT_EQ(Parse({"fit", "--journal=f"})->fit.rows, std::nullopt) << "as recorded";
  const auto batch = Parse({"fit", "--lengths=f", "--rows=batch"});
  EXPECT_EQ(batch->fit.token_us, 0) << "no rows of the bucket are computed";
  EXPECT_EQ(batch->fit.computed_token_us, 0.04);
  EXPECT_EQ(Parse({"ladder", "try", "--model", "m"})->ladder.model, "m");
  const auto ladder = Parse({"ladder", "set", "m", "--strategy=geometric", "--ratio=2", "--keep"});
  ASSERT_TRUE(ladder.ok()) << ladder.status();
  EXPECT_EQ(ladder->ladder.options, (LadderChoice{{"strategy", "geometric"}, {"ratio", "2"}}));
  EXPECT_TRUE(ladder->ladder.keep);
}

TEST(ParseArguments, GlobalFlagsMayPrecedeOrFollowTheCommand) {
  EXPECT_EQ(Parse({"--server", "a:1", "models"})->server, "a:1");
  EXPECT_EQ(Parse({"models", "--server", "a:1", "--deadline=250ms"}, "b:2")->server, "a:1");
  EXPECT_EQ(Parse({"models", "--deadline=250ms"})->deadline_us, 250'000);
  EXPECT_EQ(Parse({"models"}, "b:2")->server, "b:2");
  EXPECT_EQ(Parse({"models"}, "")->server, "localhost:8001");
}

TEST(ParseArguments, PrintsHelpAndVersion) {
  EXPECT_THAT(Parse({"--help"})->text, HasSubstr("Exit codes"));
  EXPECT_THAT(Parse({"models", "--help"})->text, HasSubstr("--server"));
  EXPECT_THAT(Parse({"infer", "--help"})->text, HasSubstr("--max-tokens"));
  EXPECT_EQ(Parse({"infer", "--help"})->command, Command::kPrint);
  EXPECT_THAT(Parse({"--version"})->text, testing::StartsWith("sluice "));
}

struct BadArgumentsRow {
  const char* name;
  std::vector<const char*> arguments{};
  const char* error;
};
class BadArgumentsTable : public TableTest<BadArgumentsRow> {};

TEST_P(BadArgumentsTable, AreNamed) {
  EXPECT_EQ(Parse(row().arguments).status(), absl::InvalidArgumentError(row().error));
}

const BadArgumentsRow kBadArgumentsRows[] = {
    {.name = "NoCommand", .error = "no command given; name one, such as infer, or see --help"},
    {.name = "TwoEqualCandidateLabels",
     .arguments = {"classify", "text", "--candidate-label=a", "--candidate-label=a"},
     .error = "--candidate-label: the labels must be different and not empty"},
    {.name = "AHypothesisWithoutAPlaceForTheLabel",
     .arguments = {"classify", "text", "--candidate-label=a", "--hypothesis=b"},
     .error = "--hypothesis is \"b\"; expected a text with {} once, in place of the label"},
    {.name = "InferWithoutAPrompt",
     .arguments = {"infer"},
     .error = "infer needs exactly one of --text, --ids, --inputs-embeds and --file"},
    {.name = "InferWithTwoPrompts",
     .arguments = {"infer", "--text=a", "--ids=1"},
     .error = "infer needs exactly one of --text, --ids, --inputs-embeds and --file"},
    {.name = "InferWithAnIdThatIsAWord",
     .arguments = {"infer", "--ids=1,x"},
     .error = "--ids: ids: expected comma-separated 32-bit integers, got \"x\""},
    {.name = "InferWithNoConcurrency",
     .arguments = {"infer", "--text=a", "--concurrency=0"},
     .error = "--concurrency: expected an integer in [1, 1024], got \"0\""},
    {.name = "GenerateWithoutAPrompt",
     .arguments = {"generate"},
     .error =
         "generate needs exactly one of a prompt (PROMPT or --text), --ids and --inputs-embeds"},
    {.name = "GenerateWithTwoFlagsOfAPrompt",
     .arguments = {"generate", "--text=a", "--ids=1"},
     .error =
         "generate needs exactly one of a prompt (PROMPT or --text), --ids and --inputs-embeds"},
    {.name = "GenerateWithAPromptAndIds",
     .arguments = {"generate", "a", "--ids=1"},
     .error =
         "generate needs exactly one of a prompt (PROMPT or --text), --ids and --inputs-embeds"},
    {.name = "GenerateWithAPromptTwice",
     .arguments = {"generate", "a", "--text=a"},
     .error = "generate: the prompt is given twice, as an argument and with --text"},
    {.name = "OutputsWithoutJson",
     .arguments = {"generate", "--text=a", "--outputs=logprobs"},
     .error = "--outputs: needs --json"},
    {.name = "AServerWithoutPort",
     .arguments = {"models", "--server=x"},
     .error = "--server: expected HOST:PORT, got \"x\""},
    {.name = "ADeadlineThatIsAWord",
     .arguments = {"models", "--deadline=x"},
     .error = "--deadline: expected a duration in [0, 24h] with its unit: us, ms, s, min or h, got "
              "\"x\""},
    {.name = "ADeadlineWithoutItsUnit",
     .arguments = {"models", "--deadline=1"},
     .error = "--deadline: expected a duration in [0, 24h] with its unit: us, ms, s, min or h, got "
              "\"1\""},
    {.name = "ATimeoutWithoutItsUnit",
     .arguments = {"infer", "--text=a", "--timeout=1"},
     .error = "--timeout: timeout: expected a duration with its unit, such as 500ms, got \"1\""},
    {.name = "AMisspeltFlag",
     .arguments = {"infer", "--txt", "a", "b", "--max-tokens=2"},
     .error = "unexpected: --txt a b; did you mean --text?"},
    {.name = "AFlagOfACommandBeforeIt",
     .arguments = {"--model", "m", "embed", "a"},
     .error = "--model belongs after the command: sluice embed --model ..."},
    {.name = "AFlagWithItsValueBeforeTheCommand",
     .arguments = {"--model=m", "embed", "a"},
     .error = "--model belongs after the command: sluice embed --model ..."},
    {.name = "AMisspeltCommand",
     .arguments = {"bucket"},
     .error = "no command bucket; did you mean buckets?"},
    {.name = "AMetricsAddressWithoutPort",
     .arguments = {"stats", "--metrics-address=x"},
     .error = "--metrics-address: expected HOST:PORT, got \"x\""},
    {.name = "WatchingAtAWord",
     .arguments = {"buckets", "--watch", "x"},
     .error = "--watch: expected a number in [0.1, 3600], in seconds, got \"x\""},
    {.name = "TwoSourcesToFitTo",
     .arguments = {"fit", "--lengths=f", "--trace=g"},
     .error = "--lengths: give exactly one of --lengths, --trace and --journal"},
    {.name = "ALadderSetToNothing",
     .arguments = {"ladder", "set", "m"},
     .error = "--strategy: set needs at least one option"},
    {.name = "ARatioBeyondItsRange",
     .arguments = {"ladder", "set", "m", "--ratio=1"},
     .error = "--ratio: expected a number in (1, 16], got \"1\""},
    {.name = "AnOptionWithShow",
     .arguments = {"ladder", "show", "--ratio=2"},
     .error = "--ratio: only valid with set"},
    {.name = "AnUnknownAction",
     .arguments = {"ladder", "raise"},
     .error = "ACTION: expected one of show, try, set, reset, got \"raise\""},
    {.name = "ALoadOfOne",
     .arguments = {"fit", "--lengths=f", "--load=1"},
     .error = "--load: expected a number in (0, 1), got \"1\""},
    {.name = "MinTokensAboveTheBatch",
     .arguments = {"fit", "--lengths=f", "--min-tokens=64", "--max-batch-tokens=32"},
     .error = "--min-tokens: 64 is above --max-batch-tokens, 32"},
    {.name = "AStepThatCostsNothing",
     .arguments = {"fit", "--lengths=f", "--us-per-step=0", "--us-per-bucket-token=0"},
     .error =
         "--us-per-step: the cost of a step is 0, so no bucket would be better than another; set "
         "--us-per-step or --us-per-bucket-token"},
};
SLUICE_TABLE(BadArgumentsTable, kBadArgumentsRows);

TEST(ParseArguments, TheDoctorTakesThreeAddresses) {
  const auto given = Parse({"doctor", "--server=a:1"}, "b:2");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->server, "a:1");
  EXPECT_EQ(given->doctor.admin.address, "a:8003");
  EXPECT_EQ(given->doctor.metrics_address, "a:8002");
  EXPECT_EQ(Parse({"doctor"}, "b:2", "c:3")->doctor.admin.address, "c:3");
  const auto tls = Parse({"doctor", "--ca=a.pem"});
  EXPECT_TRUE(tls->connection.tls);
  EXPECT_FALSE(tls->doctor.admin.connection.tls);
  EXPECT_EQ(Parse({"doctor", "--admin=d:4"}, "b:2", "c:3")->doctor.admin.address, "d:4");
  EXPECT_TRUE(Parse({"doctor", "--admin=https://a:1"})->doctor.admin.connection.tls);
  EXPECT_EQ(Parse({"doctor", "--metrics-address=none"})->doctor.metrics_address, "");
}

TEST(ParseArguments, CommandsRefuseFlagsOfOtherCommands) {
  EXPECT_FALSE(Parse({"fit"}).ok());
  EXPECT_FALSE(Parse({"explain"}).ok());
  EXPECT_FALSE(Parse({"unknown"}).ok());
  EXPECT_FALSE(Parse({"models", "--nonsense"}).ok());
  EXPECT_FALSE(Parse({"infer", "--text"}).ok());
  EXPECT_FALSE(Parse({"infer", "--text=a", "--stop", "b", "c"}).ok());
  EXPECT_FALSE(Parse({"infer", "--text=a", "--top-k=1", "--top-k=2"}).ok());
  EXPECT_FALSE(Parse({"generate", "--text=a", "--file=f"}).ok());
  EXPECT_FALSE(Parse({"generate", "Once", "upon"}).ok());
  EXPECT_FALSE(Parse({"infer", "a"}).ok());
}

}  // namespace
}  // namespace sluice::client
