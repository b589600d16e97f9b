#include <atomic>
#include <optional>
#include <ostream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/response.h"
#include "client/utf8_stream.h"

namespace sluice::client {
namespace {

// Shows one row's answer on `console.out` as it arrives.
class Answer {
 public:
  Answer(bool json, const Console& console)
      : json_(json), console_(console), text_(/*controls=*/!console.terminal) {}

  // Returns InvalidArgument if the response contradicts itself.
  absl::Status Show(const inference::ModelInferResponse& response) {
    SLUICE_ASSIGN_OR_RETURN(const auto tensors, DecodeOutputs(response));
    Count(response, tensors);
    if (json_) {
      *console_.out << JsonLine(ResponseJson(response, tensors));
    } else {
      Print(tensors);
    }
    console_.out->flush();
    return console_.out->good() ? absl::OkStatus() : absl::DataLossError("cannot write the answer");
  }

  // Ends the answer; no response follows.
  void End() {
    if (json_) return;
    Write(text_.Finish());
    if (begun_) *console_.out << "\n" << std::flush;
  }

  std::string Summary(bool interrupted) const {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start_);
    std::string line = absl::StrFormat("%d tokens in %.3f s, %.1f/s", tokens_, seconds,
                                       seconds > 0 ? static_cast<double>(tokens_) / seconds : 0.0);
    if (first_.has_value()) {
      absl::StrAppendFormat(&line, ", the first after %.3f s",
                            absl::ToDoubleSeconds(*first_ - start_));
    }
    if (interrupted) {
      absl::StrAppend(&line, ", interrupted");
    } else if (!finish_.empty()) {
      absl::StrAppend(&line, ", finish ", absl::Utf8SafeCHexEscape(finish_));
    }
    if (seed_.has_value()) absl::StrAppend(&line, ", seed ", *seed_);
    return line + "\n";
  }

 private:
  void Count(const inference::ModelInferResponse& response, const Tensors& tensors) {
    tokens_ += GeneratedTokens(tensors);
    if (tokens_ > 0 && !first_.has_value()) first_ = absl::Now();
    if (std::string reason = FinishReason(tensors); !reason.empty()) finish_ = std::move(reason);
    if (const auto seed = DrawnSeed(response); seed.has_value()) seed_ = seed;
  }

  // Prints the text, or the ids if the model has no text.
  void Print(const Tensors& tensors) {
    if (FindTensor(tensors, "text_output") != nullptr) {
      const auto* rows = FindValues<std::string>(tensors, "text_output");
      if (rows != nullptr && !rows->empty()) Write(text_.Append(rows->front()));
      return;
    }
    const auto* values = FindValues<int32_t>(tensors, "output_ids");
    if (values == nullptr) return;
    for (const int32_t id : *values) Write(absl::StrCat(begun_ ? " " : "", id));
  }

  void Write(const std::string& text) {
    begun_ |= !text.empty();
    *console_.out << text;
  }

  const bool json_;
  const Console& console_;
  const absl::Time start_ = absl::Now();

  Utf8Stream text_;
  bool begun_ = false;
  int64_t tokens_ = 0;
  std::optional<absl::Time> first_;
  std::string finish_;
  std::optional<int64_t> seed_;
};

absl::Status ShowAll(InferStream* stream, Answer* answer) {
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const auto response, stream->Next());
    if (!response.has_value()) return absl::OkStatus();
    SLUICE_RETURN_IF_ERROR(answer->Show(*response));
  }
}

// Does the same as ShowAll, but an interrupt cancels the stream.
absl::Status ShowUntilInterrupted(const Console& console, InferStream* stream, Answer* answer,
                                  bool* interrupted) {
  if (!console.set_interrupt) return ShowAll(stream, answer);
  std::atomic<bool> called = false;
  console.set_interrupt([&] {
    called = true;
    stream->Cancel();
  });
  absl::Status status = ShowAll(stream, answer);
  console.set_interrupt(nullptr);
  *interrupted = called && !status.ok();
  return status;
}

}  // namespace

int RunGenerate(const Arguments& arguments, const Connection& connection, const Console& console) {
  const GenerateArguments& generate = arguments.generate;
  inference::ModelInferRequest request;
  const int code = CompleteRequest(generate, arguments, connection, console, &request);
  if (code != kExitOk) return code;
  Answer answer(generate.json, console);
  bool interrupted = false;
  const absl::Status status =
      ShowUntilInterrupted(console, connection.Stream(request).get(), &answer, &interrupted);
  answer.End();
  if (console.progress || generate.verbose) *console.error << answer.Summary(interrupted);
  if (interrupted) return kExitInterrupted;
  return status.ok() ? kExitOk : Fail(status, arguments, console);
}

}  // namespace sluice::client
