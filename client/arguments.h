// Parses the command line of `sluice`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "engine/ladder_choice.h"
#include "engine/options.h"
#include "proto/inference.pb.h"

namespace sluice::client {

struct RequestArguments {
  inference::ModelInferRequest request;  // an empty model name means the only one that is served
  bool text_from_input = false;  // `request` has no prompt yet: it is read from standard input
};

// If `file` is empty, `request` is complete except for `text_from_input`. If not, `request` holds
// the defaults for keys that the lines of the file leave out.
struct InferArguments : RequestArguments {
  std::string file;  // "-" means standard input
  int concurrency = 8;
  bool json = false;
};

struct GenerateArguments : RequestArguments {
  bool json = false;
  bool verbose = false;  // print the summary even if the output is not a terminal
};

struct ModelsArguments {
  std::string model;  // empty means all
  bool json = false;
};

// The candidate labels of classify.
struct ZeroShotArguments {
  std::vector<std::string> labels;  // empty: no zero-shot classification
  std::string hypothesis = "This example is {}.";
  bool multi_label = false;  // each label has a probability of its own
};

// The arguments of embed, rerank, classify, tag and extract.
struct TaskArguments : RequestArguments {
  std::vector<std::string> texts;   // for rerank: the documents
  bool texts_from_input = false;    // the texts are the lines of standard input
  std::string query;                // for rerank
  std::optional<std::string> pair;  // for classify: the second text of each pair
  ZeroShotArguments zero_shot;      // for classify
  bool sparse = false;              // for embed: terms and weights instead of a vector
  int32_t top = 0;                  // for rerank: the number of documents to show; 0 means all
  bool json = false;
};

struct StatsArguments {
  std::string model;            // empty means all
  std::string metrics_address;  // empty means that the metrics are not read
  bool json = false;
};

// An address and how to reach it.
struct Endpoint {
  std::string address;  // HOST:PORT
  ConnectionArguments connection;
};

struct DoctorArguments {
  Endpoint admin;
  std::string metrics_address;  // empty means that the metrics are not read
  bool json = false;
};

struct HealthArguments {
  std::string service;
};

struct BucketsArguments {
  std::string model;  // empty means all
  std::string model_version;
  bool advise = false;
  bool json = false;
  bool history = false;
  int64_t watch_us = 0;  // the interval of --watch; 0 means to print once
};

struct ReviewArguments {
  std::string model;  // empty means the only one that is served
  std::string model_version;
  bool force = false;
  bool json = false;
};

struct LadderArguments {
  enum class Action { kShow, kTry, kSet, kReset };
  Action action = Action::kShow;
  std::string model;  // empty means the only one that is served
  std::string model_version;
  LadderChoice options;  // of kSet
  bool keep = false;
  bool json = false;
};
constexpr auto EnumNamesOf(LadderArguments::Action) {
  using enum LadderArguments::Action;
  return EnumNameTable<LadderArguments::Action>(
      {{kShow, "show"}, {kTry, "try"}, {kSet, "set"}, {kReset, "reset"}});
}

struct ExplainArguments {
  std::string request_id;
  std::string model;  // empty means any
  bool json = false;
};

// The rows that a device computes; see ComputedRows.
enum class DeviceRows { kLibrary, kBucket, kBatch };
constexpr auto EnumNamesOf(DeviceRows) {
  using enum DeviceRows;
  return EnumNameTable<DeviceRows>({{kLibrary, "library"}, {kBucket, "bucket"}, {kBatch, "batch"}});
}

// Exactly one of `lengths`, `trace` and `journal` is given.
struct FitArguments {
  std::string lengths;  // a file, or "-" for standard input
  std::string trace;
  std::string journal;
  std::string column;  // a number or a name; empty if each line is just a length
  bool clip = false;
  LadderOptions ladder;
  BatchOptions batch{.max_batch_tokens = 4096};
  // The strategy of the ladder to print, or "all" for the best of all.
  std::string strategy = "adaptive";
  // The cost of a step in microseconds: base, per token of its bucket, per token that it computes.
  // With a journal, all are 0 if none was given, and the journal's own costs apply.
  double step_us = 0;
  double token_us = 0;
  double computed_token_us = 0;
  // The time to prepare a plan.
  double capture_ms = 0;
  // The rows that the device computes; without a value as recorded.
  std::optional<DeviceRows> rows;
  double load = 0;  // 0: the recorded times
  std::string out;  // also write the configuration to this file; empty means none
  bool json = false;
};

struct VerifyArguments {
  std::string model_directory;
  std::string golden;
  double tolerance = 1e-5;
  std::string profile;
  // Texts for comparing the model's precision with f32; used instead of a golden file.
  std::string text;
  std::string quantization;  // empty: as in config.json
  bool quantize_head = false;
  int64_t quantization_group = 0;  // 0 for the default
  std::string kv_dtype;            // empty: as in config.json
  std::string reference;           // empty: the model itself
  bool json = false;
};

struct QuantizeArguments {
  std::string model_directory;
  std::string text;
  std::string out;
  bool smooth = true;
  double keep_above = 0;
  int64_t keep_channels = 0;
};

struct PlanArguments {
  std::string model_directory;
  std::string model;  // a served model, instead of a directory
  std::string model_version;
  // "cpu" or empty: this machine's processor; else a file that describes a device.
  std::string device;
  int64_t context = 0;  // 0 for 4096, or the model's longest sequence if that is less
  int64_t sequences = 1;
  int64_t tokens = 0;  // of each sequence; 0: 1, or the whole context if attention is bidirectional
  int32_t threads = 0;  // 0 for all
  AttentionVariant variant{};
  bool probe = false;
  bool profile = false;
  bool json = false;
};

struct EinsumArguments {
  std::string text;   // an einsum string, or einsums
  std::string file;   // of a cascade, instead of the text; "-" means standard input
  std::string paper;  // the name of a cascade of the paper, instead of the text
  bool has_source() const { return !text.empty() || !file.empty() || !paper.empty(); }
  bool derive = false;
  std::string sizes;
  std::string device;  // as in PlanArguments
  bool unicode = false;
  bool json = false;
};

struct ManageArguments {
  std::string model;
  int64_t model_version = 0;  // 0 if not given
  bool json = false;
};

struct Arguments {
  enum class Command {
    kPrint,
    kInfer,
    kGenerate,
    kEmbed,
    kRerank,
    kClassify,
    kTag,
    kExtract,
    kModels,
    kStats,
    kHealth,
    kDoctor,
    kBuckets,
    kReview,
    kLadder,
    kExplain,
    kLoad,
    kUnload,
    kReload,
    kFit,
    kVerify,
    kQuantize,
    kPlan,
    kEinsum,
    kServe
  };
  Command command = Command::kPrint;
  std::string text;  // the help or the version, for kPrint
  std::string server;
  int64_t deadline_us = 0;  // of each call; 0 means none
  ConnectionArguments connection;
  // The daemon that a command of the admin API is meant for, if --server names it, or if only the
  // environment gives both addresses. The command is refused if `server` turns out to be the
  // address of another daemon, or if this daemon does not answer and `chosen_admin` is set.
  std::optional<Endpoint> daemon;
  bool calls_admin = false;   // `server` is an admin address
  bool chosen_admin = false;  // `server` is an admin address that --admin did not give
  InferArguments infer;
  GenerateArguments generate;
  ModelsArguments models;
  TaskArguments task;
  StatsArguments stats;
  HealthArguments health;
  DoctorArguments doctor;
  BucketsArguments buckets;
  ReviewArguments review;
  LadderArguments ladder;
  ExplainArguments explain;
  FitArguments fit;
  VerifyArguments verify;
  QuantizeArguments quantize;
  PlanArguments plan;
  EinsumArguments einsum;
  ManageArguments manage;
};

// Returns InvalidArgument that names the flag. Defaults come from the environment: SLUICE_SERVER
// for --server, SLUICE_ADMIN for --admin, and SLUICE_TOKEN for --token.
absl::StatusOr<Arguments> ParseArguments(int argc, const char* const* argv,
                                         const std::function<const char*(const char*)>& getenv);

}  // namespace sluice::client
