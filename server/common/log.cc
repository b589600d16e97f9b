#include "server/common/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>

#include "absl/strings/escaping.h"
#include "base/token_bucket.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "nlohmann/json.hpp"
#include "spdlog/async.h"
#include "spdlog/async_logger.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/spdlog.h"

namespace sluice {
namespace {

// The longest time for the last records if the reader of standard error is blocked.
constexpr std::chrono::seconds kLastFlush{1};

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%fZ %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})";

std::string JsonString(std::string_view text) {
  // ASCII only, because some readers of logs take U+2028 for the end of a line, and U+202E changes
  // the order in which a terminal shows the rest of the line.
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                   nlohmann::json::error_handler_t::replace);
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

// Writes to standard error without blocking longer than EndWithin allows: a pipe whose reader has
// stopped would otherwise keep the process from ending. Lines that cannot be written are lost.
class Log::StandardError final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // The number of records that were lost, in whole or in part.
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

  // From now on, writes for at most `time` altogether and then drops all records.
  void EndWithin(std::chrono::milliseconds time) {
    end_.store(std::chrono::steady_clock::now() + time, std::memory_order_release);
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view rest(line.data(), line.size());
    while (!rest.empty() && AwaitRoom()) {
      // A pipe that is ready has room for this number of bytes.
      const ssize_t count =
          write(STDERR_FILENO, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
      if (count < 0 && errno != EINTR && errno != EAGAIN) break;
      rest.remove_prefix(std::max<ssize_t>(count, 0));
    }
    if (!rest.empty()) lost_.fetch_add(1, std::memory_order_relaxed);
  }
  void flush_() override {}

  // Returns false if the time has passed.
  bool AwaitRoom() const {
    constexpr std::chrono::milliseconds kLook{100};  // EndWithin may be called during the wait
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end_.load(std::memory_order_acquire) - std::chrono::steady_clock::now());
      pollfd room = {STDERR_FILENO, POLLOUT, 0};
      const auto wait = std::clamp(left, std::chrono::milliseconds(0), kLook);
      if (poll(&room, 1, static_cast<int>(wait.count())) > 0) return true;
      if (left <= std::chrono::milliseconds(0)) return false;
    }
  }

  std::atomic<Time> end_ = Time::max();
  std::atomic<int64_t> lost_ = 0;
};

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
      sink = log->standard_error_ = std::make_shared<StandardError>();
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
  if (standard_error_ != nullptr) standard_error_->EndWithin(kLastFlush);
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

// spdlog's own name of warn is "warning".
std::string Log::level() const {
  const auto level = logger_->level();
  return level == spdlog::level::warn ? "warn" : spdlog::level::to_string_view(level).data();
}

int64_t Log::dropped() const {
  const int64_t lost = standard_error_ == nullptr ? 0 : standard_error_->lost();
  return lost + static_cast<int64_t>(pool_->overrun_counter());
}

void Log::CaptureGrpc() {
  grpc_log.store(this, std::memory_order_release);
  gpr_set_log_function(&OnGrpcLog);
  // Protobuf writes a line to standard error for each caller's string that is not UTF-8, although
  // the caller also gets an error.
  google::protobuf::SetLogHandler(nullptr);
}

}  // namespace sluice
