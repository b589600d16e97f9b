#include "engine/journal/journal_reader.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/journal/schedule_json.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 4;
constexpr int64_t kMaxDeferred = int64_t{1} << 60;  // nanoseconds
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxJournalTokens = 1 << 20;
// About 73 years: sums with any option stay far from overflow.
constexpr int64_t kMaxTime = int64_t{1} << 61;

int32_t Int32(ObjectReader* reader, const std::string& key, int64_t min, int64_t max = kMaxInt32) {
  return reader->Integer(key, min, max);
}

uint64_t Ticket(ObjectReader* reader) { return reader->Integer("ticket", 0, kMaxTime); }

// Returns MonoTime::max() if the key is absent.
MonoTime Time(ObjectReader* reader, const std::string& key) {
  if (!reader->Has(key)) return MonoTime::max();
  return MonoTime(nanoseconds(reader->Integer(key, 0, kMaxTime)));
}

// Reads a list of three numbers.
std::array<int32_t, 3> Triple(ObjectReader* reader, const std::string& key) {
  const std::vector<int64_t> values = reader->Integers(key, 0, kMaxJournalTokens);
  if (values.size() != 3) {
    reader->Fail(key, "is not a list of 3 numbers");
    return {};
  }
  return {static_cast<int32_t>(values[0]), static_cast<int32_t>(values[1]),
          static_cast<int32_t>(values[2])};
}

Bucket ReadBucket(ObjectReader* reader) {
  const auto [tokens, sequences, positions] = Triple(reader, "bucket");
  return {.tokens = tokens, .sequences = sequences, .positions = positions};
}

absl::StatusOr<JournalEntry> ReadStart(const json& line, ObjectReader* reader) {
  JournalStart start;
  reader->Integer("format", 2, 2);
  start.version = reader->Integer("version", 0, std::numeric_limits<int64_t>::max());
  start.half_life = nanoseconds(reader->Integer("half_life_ns", 1, kMaxTime));
  for (const auto& [key, text] :
       {std::pair("model", &start.model), std::pair("device", &start.device),
        std::pair("profile", &start.profile)}) {
    SLUICE_ASSIGN_OR_RETURN(*text, StringFromJson(line, key));
  }
  const auto batch = line.find("batch");
  const auto costs = line.find("costs");
  if (batch == line.end() || !batch->is_object() || costs == line.end() || !costs->is_object()) {
    return absl::InvalidArgumentError("batch or costs is not an object");
  }
  SLUICE_ASSIGN_OR_RETURN(start.batch, BatchOptionsFromJson(*batch));
  if (start.batch.max_batch_sequences < 1) {
    return absl::InvalidArgumentError("max_batch_sequences must be at least 1");
  }
  SLUICE_ASSIGN_OR_RETURN(start.costs, CostsFromJson(*costs));
  return start;
}

JournalEntry ReadPush(ObjectReader* reader) {
  JournalPush push;
  push.arrival = reader->Boolean("arrival", false);
  push.sequence = {
      .ticket = Ticket(reader),
      .priority = Int32(reader, "priority", 1, kPriorityLevels),
      .caller = static_cast<uint32_t>(
          reader->Integer("caller", 0, std::numeric_limits<uint32_t>::max(), 0)),
      .adapter = static_cast<uint64_t>(
          reader->Integer("adapter", 0, std::numeric_limits<int64_t>::max(), 0)),
      .first_position = Int32(reader, "first", 0, kMaxJournalTokens),
      .reach = {.window = static_cast<int32_t>(reader->Integer("window", 0, kMaxJournalTokens, 0)),
                .windowed = reader->Number("windowed", 0, 1, 0)},
      .tokens = Int32(reader, "tokens", 1, kMaxJournalTokens),
      .later_tokens = Int32(reader, "later", 0, kMaxJournalTokens),
      .sampled_rows = Int32(reader, "sampled", 0),
      .pages = Int32(reader, "pages", 0),
      .running = reader->Boolean("running", false),
      .generates = reader->Boolean("generates", false),
      .expected_steps = Int32(reader, "steps", 1, kMaxJournalTokens),
      .queued = Time(reader, "queued"),
      .deferred = nanoseconds(reader->Integer("deferred", -kMaxDeferred, kMaxDeferred, 0)),
      .deadline = Time(reader, "deadline"),
      .overtaken = Int32(reader, "overtaken", 0),
  };
  if (!reader->Has("queued")) reader->Fail("queued", "is missing");
  return push;
}

JournalEntry ReadRevise(ObjectReader* reader) {
  return JournalRevise{.ticket = Ticket(reader),
                       .next = {.first_position = Int32(reader, "first", 0, kMaxJournalTokens),
                                .tokens = Int32(reader, "tokens", 1, kMaxJournalTokens),
                                .later_tokens = Int32(reader, "later", 0, kMaxJournalTokens),
                                .sampled_rows = Int32(reader, "sampled", 0),
                                .pages = Int32(reader, "pages", 0),
                                .running = reader->Boolean("running", false)}};
}

JournalEntry ReadDecide(ObjectReader* reader) {
  JournalDecide decide;
  decide.at = {.now = Time(reader, "now"),
               .draining = reader->Boolean("draining", false),
               .ahead = reader->Boolean("ahead", false),
               .available_pages = Int32(reader, "pages", 0)};
  if (!reader->Has("now")) reader->Fail("now", "is missing");
  const auto [tokens, sequences, longest] = Triple(reader, "size");
  decide.decision = {
      .launch = reader->Boolean("launch", false),
      .size = {.tokens = tokens, .sequences = sequences, .longest = longest},
      .bucket = ReadBucket(reader),
      .trigger =
          static_cast<Trigger>(reader->Integer("trigger", 0, std::ssize(kNamesOf<Trigger>) - 1)),
      .wait_until = Time(reader, "until"),
      .wait_reason = static_cast<WaitReason>(
          reader->Integer("reason", 0, std::ssize(kNamesOf<WaitReason>) - 1)),
  };
  for (const int64_t ticket : reader->Integers("batch", 0, kMaxTime)) {
    decide.tickets.push_back(ticket);
  }
  return decide;
}

JournalEntry ReadObserve(ObjectReader* reader) {
  JournalObserve observe;
  observe.step = {
      .bucket = ReadBucket(reader),
      .computed_tokens = Int32(reader, "computed", 0),
      .context_tokens = reader->Integer("context", 0, kMaxTime),
      .distinct_positions = Int32(reader, "positions", 0),
      .sampled_rows = Int32(reader, "sampled", 0),
      .distinct_adapters = static_cast<int32_t>(reader->Integer("adapters", 0, kMaxInt32, 0))};
  observe.seconds = reader->Number("seconds", 0, 1e9);
  return observe;
}

absl::StatusOr<JournalEntry> ReadLine(const json& line) {
  if (!line.is_object()) return absl::InvalidArgumentError("not a JSON object");
  SLUICE_ASSIGN_OR_RETURN(const std::string op, StringFromJson(line, "op"));
  absl::Status status;
  ObjectReader reader(line, "", &status);
  absl::StatusOr<JournalEntry> entry = absl::InvalidArgumentError("unknown op");
  if (op == "start") {
    entry = ReadStart(line, &reader);
  } else if (op == "ladder") {
    SLUICE_ASSIGN_OR_RETURN(Ladder ladder, LadderFromJson(line));
    entry = JournalLadder{std::move(ladder)};
  } else if (op == "push") {
    entry = ReadPush(&reader);
  } else if (op == "remove") {
    entry = JournalRemove{Ticket(&reader)};
  } else if (op == "revise") {
    entry = ReadRevise(&reader);
  } else if (op == "decide") {
    entry = ReadDecide(&reader);
  } else if (op == "observe") {
    entry = ReadObserve(&reader);
  } else if (op == "dropped") {
    entry = JournalDropped{reader.Integer("lines", 1, kMaxTime)};
  }
  SLUICE_RETURN_IF_ERROR(status);
  return entry;
}

}  // namespace

absl::StatusOr<JournalReader> JournalReader::Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  return JournalReader(std::move(file));
}

absl::StatusOr<std::optional<JournalEntry>> JournalReader::Next() {
  file_.getline(text_.data(), static_cast<std::streamsize>(text_.size()));
  if (file_.eof() || file_.bad()) return std::nullopt;
  ++line_;
  const auto fail = [this](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": ", absl::string_view(what.data(), what.size())));
  };
  if (file_.fail()) return fail(absl::StrCat("is longer than ", kMaxLineBytes, " bytes"));
  const size_t length = file_.gcount() - 1;  // without the newline
  const absl::StatusOr<json> line = ParseJson({text_.data(), length}, kMaxDepth);
  if (!line.ok()) return fail({line.status().message().data(), line.status().message().size()});
  absl::StatusOr<JournalEntry> entry = ReadLine(*line);
  if (!entry.ok()) return fail({entry.status().message().data(), entry.status().message().size()});
  return std::optional<JournalEntry>(*std::move(entry));
}

}  // namespace sluice
