// The reader of the files that a Journal writes. A file is not trusted: the length of a line is
// checked before it is stored, and the range of every value before it is used.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

struct JournalStart {
  std::string model;
  int64_t version = 0;
  std::string device;
  std::string profile;
  nanoseconds half_life{0};
  BatchOptions batch;
  CostState costs;
};
struct JournalLadder {
  Ladder ladder;
};
struct JournalPush {
  WaitingSequence sequence;
  bool arrival = false;
};
struct JournalRemove {
  uint64_t ticket = 0;
};
struct JournalRevise {
  uint64_t ticket = 0;
  NextStep next{};
};
struct JournalDecide {
  DecisionTime at;
  BatchDecision decision;
  std::vector<uint64_t> tickets;  // of the batch
};
struct JournalObserve {
  StepShape step;
  double seconds = 0;
};
struct JournalDropped {
  int64_t lines = 0;
};
using JournalEntry = std::variant<JournalStart, JournalLadder, JournalPush, JournalRemove,
                                  JournalRevise, JournalDecide, JournalObserve, JournalDropped>;

class JournalReader {
 public:
  static constexpr size_t kMaxLineBytes = 4 << 20;

  // Returns NotFound with the path in the message.
  static absl::StatusOr<JournalReader> Open(const std::string& path);

  // Returns the entry of the next line, or nullopt at the end. Ignores a last line without a
  // newline, because it was still being written. Returns InvalidArgument, with the line, the field
  // and the problem in the message.
  absl::StatusOr<std::optional<JournalEntry>> Next();

  // Returns the line number of the last entry, from 1.
  int64_t line() const { return line_; }

 private:
  explicit JournalReader(std::ifstream file) : file_(std::move(file)), text_(kMaxLineBytes, '\0') {}

  std::ifstream file_;
  std::string text_;
  int64_t line_ = 0;
};

}  // namespace sluice
