#include "loadtest/load/arguments.h"

#include <cstdlib>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "client/connection_flags.h"
#include "loadtest/load/lengths.h"

namespace sluice::load {
namespace {

constexpr char kDescription[] =
    "Open-loop load generator for servers of the Open Inference Protocol over gRPC.\n"
    "Requests are sent when they are due, even if earlier ones are unanswered. Latency counts from "
    "the due time.";

constexpr char kFooter[] =
    "Examples\n"
    "  sluice-load run --rate 200,400,800 --lengths lognormal:64:0.8 --out run.json\n"
    "  sluice-load run --find-peak --rate 100 --objective-ms 50 --percentile 99\n"
    "  sluice-load run --trace requests.csv --arrivals trace --lengths trace --cap 256\n"
    "  sluice-load report run.json other.json --out page.html\n"
    "  sluice-load trace requests.csv --out requests.jsonl\n"
    "\nEnds with 0 when all phases are VALID, 1 when one is INVALID, 2 for wrong arguments or "
    "files, 3 when there is no server.";

// Adds an option that sets a duration and is in seconds, or in another unit of `unit_ns`
// nanoseconds.
void AddDuration(CLI::App* app, const std::string& name, nanoseconds* to, double unit_ns,
                 const std::string& help, double max = 1e6) {
  app->add_option_function<double>(
         name,
         [to, unit_ns](const double& value) {
           *to = nanoseconds(static_cast<int64_t>(value * unit_ns));
         },
         help)
      ->check(CLI::Range(0.0, max))
      ->default_str(absl::StrCat(static_cast<double>(to->count()) / unit_ns));
}
constexpr double kSecond = 1e9;
constexpr double kMs = 1e6;

void AddWhat(CLI::App* app, SessionOptions& options) {
  app->add_option("--server", options.address, "HOST:PORT of gRPC")->capture_default_str();
  app->add_option("--metrics-url", options.metrics_url,
                  "metrics page of sluiced (HOST:PORT): its counts are compared with ours, and its "
                  "queue, batches and efficiency recorded every second");
  app->add_option("--model", options.payload.model)->capture_default_str();
  app->add_option("--adapters", options.payload.adapters,
                  "calls are for MODEL:a0, MODEL:a1, and so on, this many, drawn evenly; 0: for "
                  "the model itself")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--model-version", options.payload.version, "empty: the server chooses");
  app->add_flag("--streaming", options.run.streaming, "ModelStreamInfer instead of ModelInfer");
  app->add_option_function<std::string>(
         "--max-tokens",
         [&options](const std::string& text) {
           options.workload.max_tokens_from_trace = text == "trace";
           if (text == "trace") return;
           if (!CLI::detail::lexical_cast(text, options.workload.max_tokens)) {
             throw CLI::ValidationError("--max-tokens", "expected a number or `trace`");
           }
         },
         "tokens to generate; 0: score only; -1: leave the parameter out; trace: output_tokens")
      ->default_str("0");
  app->add_option("--parameter", options.payload.parameters,
                  "NAME VALUE of the request; repeatable")
      ->type_name("NAME VALUE")
      ->allow_extra_args(false);  // otherwise a value in brackets would be split as a list
  app->add_option("--outputs", options.payload.outputs, "outputs to request; default: the server's")
      ->delimiter(',');
  app->add_option("--input", options.payload.input, "tensor of token ids")->capture_default_str();
  app->add_option("--vocab", options.payload.vocab, "ids are drawn from [0, vocab)")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app->add_option(
         "--variants", options.payload.variants,
         "different contents per length, used in turn; with few variants prompts repeat, and a "
         "server with a prefix cache answers them faster")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_flag("--int64", options.payload.int64, "ids as INT64 instead of INT32");
  app->add_flag("--typed", options.payload.typed, "typed contents instead of raw ones");
  app->add_flag("!--no-batch-dimension", options.payload.batch_dimension,
                "shape [tokens] instead of [1, tokens]");
}

void AddLoad(CLI::App* app, SessionOptions& options) {
  std::map<std::string, ArrivalKind> kinds;
  for (const auto& [kind, name] : kEnumNames<ArrivalKind>) kinds.emplace(name, kind);
  CLI::Validator kind_of_arrivals = CLI::CheckedTransformer(kinds);
  kind_of_arrivals.description("");  // the help text names them; CLI11 would add their numbers
  WorkloadOptions& workload = options.workload;
  app->add_option("--rate", options.rates,
                  "requests per second; several are run in turn; with --find-peak the start")
      ->delimiter(',');
  CLI::Option* closed =
      app->add_option("--concurrency", options.concurrencies,
                      "closed loop with this many calls in flight, each value in turn; measures "
                      "capacity and cost, not latency")
          ->delimiter(',')
          ->check(CLI::Range(1, 100'000));
  app->add_flag("--find-peak", options.find_peak,
                "double the rate until the objective is missed, then bisect")
      ->excludes(closed);
  app->add_option("--peak-tolerance", options.peak_tolerance, "precision of the bisection")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app->add_option("--arrivals", workload.arrivals, "exponential, bursty, constant or trace")
      ->transform(kind_of_arrivals)
      ->default_str("exponential");
  app->add_option("--burst-factor", workload.burst_factor, "bursty: rate while on / mean rate")
      ->capture_default_str();
  app->add_option("--burst-mean", workload.burst_mean_s, "bursty: mean on period, seconds")
      ->capture_default_str();
  app->add_option("--lengths", workload.lengths, kLengthsHelp)->capture_default_str();
  app->add_option("--cap", workload.cap,
                  "most tokens of prompt and answer together; longer ones are cut")
      ->capture_default_str();
  app->add_option(
      "--trace", options.trace_path,
      "CSV with arrival_s, input_tokens and, optionally, output_tokens; or JSON lines with "
      "timestamp, input_length and output_length, as in Mooncake's traces");
  app->add_option_function<uint64_t>(
         "--seed", [&](const uint64_t& seed) { workload.seed = options.payload.seed = seed; },
         "of arrivals, lengths and contents")
      ->default_str("1");
}

void AddMeasurement(CLI::App* app, SessionOptions& options) {
  AddDuration(app, "--duration", &options.duration, kSecond, "measured seconds of each phase", 1e5);
  AddDuration(app, "--warm-up", &options.warm_up, kSecond, "unmeasured seconds before them", 1e5);
  AddDuration(app, "--objective-ms", &options.objective.latency, kMs, "promised latency");
  app->add_option("--percentile", options.objective.percentile,
                  "percent of all requests that must meet it; errors and rejections do not")
      ->check(CLI::Range(0.1, 100.0))
      ->capture_default_str();
  AddDuration(app, "--deadline-ms", &options.run.deadline, kMs,
              "deadline of each call from its scheduled time; 0: none");
  AddDuration(app, "--drain", &options.run.drain, kSecond, "seconds to end after the last arrival",
              1e4);
  app->add_option("--channels", options.channels, "connections")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--streams", options.run.streams, "streaming: streams per connection")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--senders", options.run.senders, "threads that send")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--max-in-flight", options.run.max_in_flight, "above it, nothing is sent")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  AddDuration(app, "--min-duration", &options.limits.min_duration, kSecond,
              "a VALID phase measures at least this many seconds");
  app->add_option("--min-calls", options.limits.min_calls, "and at least this many calls")
      ->capture_default_str();
  app->add_option("--max-lateness", options.limits.max_lateness_share,
                  "and sends 99 of 100 calls at most this share of the objective late")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void AddRun(CLI::App& app, Arguments& arguments) {
  CLI::App* run = app.add_subcommand("run", "measure a server");
  SessionOptions& options = arguments.session;
  AddWhat(run, options);
  client::AddConnectionFlags(&options.connection, run);
  AddLoad(run, options);
  AddMeasurement(run, options);
  run->add_option("--record", options.record_path, "write the answers' hashes to this file");
  run->add_option("--check", options.check_path, "compare the answers with a file of --record");
  run->add_option("--label", options.label, "name of the run in reports; default: the commit");
  run->add_option("--out", arguments.out, "write the JSON report to this file");
  run->add_flag("--quiet", arguments.quiet, "no progress and no summary");
  run->callback([&] {
    arguments.command = Command::kRun;
    const absl::Status connection = client::CompleteConnection(
        [](const char* name) -> const char* { return std::getenv(name); }, &options.connection);
    if (!connection.ok()) throw CLI::ValidationError("run", std::string(connection.message()));
    const bool own_speed = options.workload.arrivals == ArrivalKind::kTrace;
    if (options.rates.empty() && options.concurrencies.empty() && !options.find_peak &&
        !own_speed) {
      throw CLI::ValidationError("run", "needs --rate, --concurrency, --find-peak or a trace");
    }
  });
}

void AddNullServer(CLI::App& app, Arguments& arguments) {
  CLI::App* serve = app.add_subcommand(
      "null-server", "serve answers of known behaviour, to measure the client's own limits");
  TestServerOptions& options = arguments.server;
  options.address = "127.0.0.1:8001";
  serve->add_option("--address", options.address, "HOST:PORT")->capture_default_str();
  AddDuration(serve, "--delay-ms", &options.delay, kMs, "delay of every answer");
  AddDuration(serve, "--service-us", &options.service_time, 1e3,
              "one request at a time, each takes this long", 1e9);
  serve
      ->add_option("--queue", options.queue,
                   "with --service-us: refuse requests while this many wait; "
                   "0: never")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  AddDuration(serve, "--stall-after", &options.stall_after, kSecond, "after the first request");
  AddDuration(serve, "--stall", &options.stall, kSecond, "no answer for this long");
  serve->add_option("--wrong-every", options.wrong_every, "every Nth answer differs; 0: none")
      ->capture_default_str();
  serve->callback([&] { arguments.command = Command::kNullServer; });
}

void AddReport(CLI::App& app, Arguments& arguments) {
  CLI::App* report = app.add_subcommand("report", "make one HTML page from one or more reports");
  report->add_option("reports", arguments.reports, "JSON files of `run --out`")->required();
  report->add_option("--out", arguments.out, "the page")->required();
  report->callback([&] { arguments.command = Command::kReport; });
}

void AddTrace(CLI::App& app, Arguments& arguments) {
  CLI::App* trace = app.add_subcommand(
      "trace", "convert a trace from CSV to JSON lines as in Mooncake's traces, or back");
  trace->add_option("trace", arguments.trace, "the trace, in either form")->required();
  trace
      ->add_option("--out", arguments.out,
                   "the converted trace; NAME.csv is CSV, any other name JSON lines")
      ->required();
  trace->callback([&] { arguments.command = Command::kTrace; });
}

}  // namespace

Parsed ParseArguments(int argc, const char* const* argv) {
  Parsed parsed;
  CLI::App app{kDescription, "sluice-load"};
  app.set_version_flag("--version", absl::StrCat("sluice-load ", Version()));
  app.footer(kFooter);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  AddRun(app, parsed.arguments);
  AddReport(app, parsed.arguments);
  AddTrace(app, parsed.arguments);
  AddNullServer(app, parsed.arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? kExitValid : kExitUsage;
  }
  return parsed;
}

}  // namespace sluice::load
