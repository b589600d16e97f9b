#include "server/common/log.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/escaping.h"
#include "base/token_bucket.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "nlohmann/json.hpp"
#include "spdlog/async.h"
#include "spdlog/async_logger.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace sluice {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%fZ %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})";

std::string JsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsPlain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
  });
}

// The log for gRPC's messages; gRPC's threads read it.
std::atomic<Log*> grpc_log{nullptr};

// The limit on gRPC's messages. gRPC logs each failed handshake, so without a limit peers could
// push all other records out of the queue.
constexpr BucketRate kGrpcLines{.per_second = 10, .burst = 100};
TokenBucket grpc_lines;
std::atomic<int64_t> grpc_suppressed{0};

void OnGrpcLog(gpr_log_func_args* args) {
  Log* log = grpc_log.load(std::memory_order_acquire);
  if (log == nullptr) return;
  if (grpc_lines.Take(1, kGrpcLines, Clock::Real()->Now()) != nanoseconds(0)) {
    grpc_suppressed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  std::vector<LogField> fields = {{"source", "grpc"}};
  if (const int64_t count = grpc_suppressed.exchange(0, std::memory_order_relaxed); count > 0) {
    fields.push_back({"suppressed_before", count});
  }
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    log->Warn(args->message, fields);
  } else {
    log->Info(args->message, fields);
  }
}

}  // namespace

std::string RenderText(std::string_view message, const std::vector<LogField>& fields) {
  std::string line = absl::CHexEscape({message.data(), message.size()});
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    if (IsPlain(field.value)) {
      line += field.value;
    } else {
      absl::StrAppend(&line, "\"", absl::CHexEscape(field.value), "\"");
    }
  }
  return line;
}

std::string RenderJson(std::string_view message, const std::vector<LogField>& fields) {
  std::string line = absl::StrCat("\"message\":", JsonString(message));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, ",", JsonString(field.key), ":",
                    field.quoted ? JsonString(field.value) : field.value);
  }
  return line;
}

absl::StatusOr<std::unique_ptr<Log>> Log::Create(const LogOptions& options, const std::string& path,
                                                 size_t queue_records) {
  std::unique_ptr<Log> log(new Log);
  log->options_ = options;
  try {
    spdlog::sink_ptr sink;
    if (path.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    }
    log->pool_ = std::make_shared<spdlog::details::thread_pool>(queue_records, 1);
    log->logger_ = std::make_shared<spdlog::async_logger>(
        "sluice", std::move(sink), log->pool_, spdlog::async_overflow_policy::overrun_oldest);
  } catch (const spdlog::spdlog_ex& error) {
    return absl::UnavailableError(absl::StrCat("cannot start the log: ", error.what()));
  }
  const bool json = options.format == LogOptions::Format::kJson;
  log->logger_->set_pattern(json ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc);
  log->SetLevel(options.level);
  log->logger_->flush_on(spdlog::level::info);
  return log;
}

Log::~Log() {
  Log* self = this;
  grpc_log.compare_exchange_strong(self, nullptr);
}

std::string Log::Render(std::string_view message, const std::vector<LogField>& fields) const {
  return options_.format == LogOptions::Format::kJson ? RenderJson(message, fields)
                                                      : RenderText(message, fields);
}

void Log::Debug(std::string_view message, const std::vector<LogField>& fields) {
  if (logger_->should_log(spdlog::level::debug)) logger_->debug(Render(message, fields));
}

void Log::Info(std::string_view message, const std::vector<LogField>& fields) {
  if (logger_->should_log(spdlog::level::info)) logger_->info(Render(message, fields));
}

void Log::Warn(std::string_view message, const std::vector<LogField>& fields) {
  if (logger_->should_log(spdlog::level::warn)) logger_->warn(Render(message, fields));
}

void Log::Error(std::string_view message, const std::vector<LogField>& fields) {
  if (logger_->should_log(spdlog::level::err)) logger_->error(Render(message, fields));
}

void Log::SetLevel(const std::string& level) { logger_->set_level(spdlog::level::from_str(level)); }

int64_t Log::dropped() const { return pool_->overrun_counter(); }

void Log::CaptureGrpc() {
  grpc_log.store(this, std::memory_order_release);
  gpr_set_log_function(&OnGrpcLog);
  // Protobuf writes a line to standard error for each caller's string that is not UTF-8, although
  // the caller also gets an error.
  google::protobuf::SetLogHandler(nullptr);
}

}  // namespace sluice
