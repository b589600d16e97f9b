// The daemon's log: records with fields, as text or JSON lines on standard error, written by a
// thread of its own.
//
// A record that finds the queue full displaces the oldest one, and that is counted: logging never
// blocks a serving thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/common/options.h"

namespace spdlog {
class logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace sluice {

struct LogField {
  LogField(std::string_view name, std::string_view text) : key(name), value(text), quoted(true) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  LogField(std::string_view name, Number number)
      : key(name), value(absl::StrCat(number)), quoted(false) {}

  std::string key;
  std::string value;
  bool quoted;
};

// `message key=value key="other value"`. Control characters are escaped, so that no caller can
// forge a line.
std::string RenderText(std::string_view message, const std::vector<LogField>& fields);

// `"message":"...","key":value`, the inside of a JSON object. Bytes that are no UTF-8 are replaced.
std::string RenderJson(std::string_view message, const std::vector<LogField>& fields);

// Thread-safe.
class Log {
 public:
  // Writes to standard error, or appends to the file `path`.
  static absl::StatusOr<std::unique_ptr<Log>> Create(const LogOptions& options,
                                                     const std::string& path = "");
  ~Log();  // writes what is queued

  void Debug(std::string_view message, const std::vector<LogField>& fields = {});
  void Info(std::string_view message, const std::vector<LogField>& fields = {});
  void Warn(std::string_view message, const std::vector<LogField>& fields = {});
  void Error(std::string_view message, const std::vector<LogField>& fields = {});

  // As LogOptions::level.
  void SetLevel(const std::string& level);

  int64_t dropped() const;

  // Sends gRPC's own messages to this log until it is destroyed; at most one log at a time. At most
  // 10 a second of them after 100 at once; the next says how many were left out. Silences
  // Protobuf's.
  void CaptureGrpc();

 private:
  Log() = default;
  std::string Render(std::string_view message, const std::vector<LogField>& fields) const;

  LogOptions options_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace sluice
