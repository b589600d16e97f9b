#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/ordered_run.h"
#include "client/progress.h"
#include "client/request.h"
#include "client/request_lines.h"
#include "client/response.h"

namespace sluice::client {
namespace {

struct LineResult {
  std::string json_line;
  bool ok = false;
  int64_t tokens = 0;
  double seconds = 0;
  std::optional<double> share_read;  // of the input, when this line was read
};

std::string ErrorLine(const RequestLine& line, const absl::Status& status) {
  return JsonLine({{"line", line.number},
                   {"error",
                    {{"code", absl::StatusCodeToString(status.code())},
                     {"message", std::string(status.message())}}}});
}

class FileRun {
 public:
  FileRun(const Arguments& arguments, const Connection& connection, const Console& console,
          RequestLines* lines, inference::ModelInferRequest defaults)
      : arguments_(arguments),
        connection_(connection),
        console_(console),
        lines_(*lines),
        defaults_(std::move(defaults)) {}

  RunCounts Run() {
    OrderedRun<RequestLine, LineResult> run([this] { return lines_.Next(); },
                                            [this](RequestLine line) { return Work(line); },
                                            [this](LineResult result) { Done(result); });
    run.Run(arguments_.infer.concurrency);
    if (console_.progress) *console_.error << "\r\x1b[K";
    *console_.error << SummaryText(counts_, latency_seconds_, absl::Now() - start_);
    return counts_;
  }

 private:
  LineResult Work(const RequestLine& line) const {
    LineResult result;
    const absl::Status status = Infer(line, &result);
    result.ok = status.ok();
    if (!status.ok()) result.json_line = ErrorLine(line, status);
    result.share_read = line.share_read;
    return result;
  }

  absl::Status Infer(const RequestLine& line, LineResult* result) const {
    if (!line.status.ok()) return line.status;
    const auto request = ParseRequestLine(line.text, defaults_);
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(arguments_.infer.file, ":", line.number, ": ", request.status().message()));
    }
    const absl::Time start = absl::Now();
    const auto response = connection_.Infer(*request);
    result->seconds = absl::ToDoubleSeconds(absl::Now() - start);
    SLUICE_RETURN_IF_ERROR(response.status());
    SLUICE_ASSIGN_OR_RETURN(const auto tensors, DecodeOutputs(*response));
    nlohmann::json json = ResponseJson(*response, tensors);
    json["line"] = line.number;
    result->json_line = JsonLine(json);
    result->tokens = GeneratedTokens(tensors);
    return absl::OkStatus();
  }

  void Done(const LineResult& result) {
    *console_.out << result.json_line << std::flush;
    ++counts_.requests;
    counts_.errors += !result.ok;
    counts_.tokens += result.tokens;
    if (result.ok) latency_seconds_.push_back(result.seconds);
    ShowProgress(result);
  }

  void ShowProgress(const LineResult& result) {
    const absl::Time now = absl::Now();
    if (!console_.progress || now - shown_ < absl::Milliseconds(100)) return;
    shown_ = now;
    *console_.error << "\r" << ProgressLine(counts_, result.share_read, now - start_) << "\x1b[K"
                    << std::flush;
  }

  const Arguments& arguments_;
  const Connection& connection_;
  const Console& console_;
  RequestLines& lines_;
  const inference::ModelInferRequest defaults_;
  const absl::Time start_ = absl::Now();

  // Used only by Done, whose calls do not overlap.
  RunCounts counts_;
  std::vector<double> latency_seconds_;
  absl::Time shown_ = absl::InfinitePast();
};

}  // namespace

int RunFile(const Arguments& arguments, const Connection& connection, const Console& console) {
  inference::ModelInferRequest defaults = arguments.infer.request;
  std::ifstream file;
  const bool from_file = arguments.infer.file != "-";
  if (from_file) file.open(arguments.infer.file, std::ios::binary);
  if (from_file && !file.is_open()) {
    *console.error << "sluice: cannot read " << arguments.infer.file << ": " << strerror(errno)
                   << "\n";
    return kExitUsage;
  }
  // The model is looked up once, not for each line. A server with several models is not an error
  // here, because the lines may name their models.
  if (defaults.model_name().empty()) {
    const auto model = OnlyModel(connection);
    if (model.ok()) {
      defaults.set_model_name(*model);
    } else if (!absl::IsFailedPrecondition(model.status())) {
      return Fail(model.status(), arguments, console);
    }
  }
  RequestLines lines(from_file ? &file : console.in, arguments.infer.file);
  const RunCounts counts =
      FileRun(arguments, connection, console, &lines, std::move(defaults)).Run();
  if (!lines.status().ok()) return UsageError(lines.status(), console);
  return counts.errors == 0 ? kExitOk : kExitFailed;
}

}  // namespace sluice::client
