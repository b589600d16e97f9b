// The daemon's log: records with fields. A separate thread writes them as text or JSON lines to
// standard error.
//
// Logging never blocks a serving thread: if the queue is full, a new record replaces the oldest
// one, which is counted as dropped.
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

// Returns `message key=value key="other value"`. Control characters are escaped, so that no caller
// can forge a line.
std::string RenderText(std::string_view message, const std::vector<LogField>& fields);

// Returns `"message":"...","key":value`, the inside of a JSON object. Bytes that are not UTF-8 are
// replaced.
std::string RenderJson(std::string_view message, const std::vector<LogField>& fields);

// Thread-safe.
class Log {
 public:
  // Writes to standard error, or appends to the file `path`. At most `queue_records` records wait
  // for the writer.
  static absl::StatusOr<std::unique_ptr<Log>> Create(const LogOptions& options,
                                                     const std::string& path = "",
                                                     size_t queue_records = 8192);
  // Writes the queued records, for at most a second if the reader of standard error is blocked.
  ~Log();

  void Debug(std::string_view message, const std::vector<LogField>& fields = {});
  void Info(std::string_view message, const std::vector<LogField>& fields = {});
  void Warn(std::string_view message, const std::vector<LogField>& fields = {});
  void Error(std::string_view message, const std::vector<LogField>& fields = {});

  // Sets the lowest level that is written; LogOptions::level lists the words.
  void SetLevel(const std::string& level);
  std::string level() const;

  // Returns the number of records that were not written: the writer could not keep up, or a write
  // to standard error failed.
  int64_t dropped() const;

  // Sends gRPC's own messages to this log until it is destroyed; at most one log at a time may do
  // so. They are limited to a burst of 100 and 10 per second; the message after a gap has the
  // number of dropped messages. Silences the messages of Protobuf.
  void CaptureGrpc();

 private:
  Log() = default;
  std::string Render(std::string_view message, const std::vector<LogField>& fields) const;

  class StandardError;

  LogOptions options_;
  std::shared_ptr<StandardError> standard_error_;  // nullptr if the log writes to a file
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace sluice
