#include "engine/journal/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/journal/schedule_json.h"

namespace sluice {
namespace {

// An upper bound for lines without lists.
constexpr size_t kPlainLine = 512;
constexpr size_t kNumber = 24;

int64_t Nanoseconds(MonoTime time) { return nanoseconds(time.time_since_epoch()).count(); }

std::string StartLine(const Journal::Start& start) {
  using nlohmann::json;
  const json line = {{"op", "start"},
                     {"format", 2},
                     {"model", start.model->name},
                     {"version", start.model->version},
                     {"device", start.backend->device},
                     {"profile", start.backend->profile},
                     {"half_life_ns", start.half_life.count()},
                     {"batch", BatchOptionsToJson(start.batch)},
                     {"costs", CostsToJson(start.costs)}};
  return line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
}

// Every journal starts with the first of these, or, if its first write failed, with the second.
constexpr std::string_view kFirstBytes[] = {R"({"batch":{)", R"({"op":")"};
constexpr size_t kMostFirstBytes = 10;

// Returns whether a file is empty or starts as a journal does, or is a device or a pipe. A part of
// the first bytes is enough, because a process may have been killed during its first write.
bool MayBeJournal(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return true;
  char first[kMostFirstBytes];
  const ssize_t count = pread(file, first, sizeof first, 0);
  if (count <= 0) return true;
  return std::ranges::any_of(kFirstBytes, [&](std::string_view expected) {
    return expected.starts_with(std::string_view(first, count).substr(0, expected.size()));
  });
}

// Truncates a file after its last newline. Returns its new size, 0 for a device or a pipe, or -1
// after an error.
int64_t CutToLines(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return -1;
  if (!S_ISREG(status.st_mode)) return 0;
  int64_t end = lseek(file, 0, SEEK_END);
  char block[4096];
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(end - std::ssize(block), 0);
    const ssize_t count = pread(file, block, end - begin, begin);
    if (count != end - begin) return -1;
    while (end > begin && block[end - begin - 1] != '\n') --end;
    if (end > begin) break;
  }
  return end < 0 || ftruncate(file, end) != 0 ? -1 : end;
}

}  // namespace

// Appends one line to a string, without allocating while the string's capacity suffices.
class Journal::Line {
 public:
  Line(std::string* out, std::string_view op) : out_(out) {
    out_->append("{\"op\":\"").append(op).append("\"");
  }
  ~Line() { out_->append("}\n"); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  template <typename Number>
  Line& Add(std::string_view key, Number value) {
    Key(key);
    Append(value);
    return *this;
  }
  Line& Add(std::string_view key, bool value) {
    Key(key);
    out_->append(value ? "true" : "false");
    return *this;
  }
  // Adds nothing if there is no time.
  Line& AddTime(std::string_view key, MonoTime time) {
    return time == MonoTime::max() ? *this : Add(key, Nanoseconds(time));
  }
  Line& Add(std::string_view key, const Bucket& bucket) {
    return AddList(key, std::array{bucket.tokens, bucket.sequences, bucket.positions},
                   [](int32_t value) { return value; });
  }
  template <typename List, typename Value>
  Line& AddList(std::string_view key, const List& list, const Value& value) {
    Key(key);
    char separator = '[';
    for (const auto& element : list) {
      out_->push_back(std::exchange(separator, ','));
      Append(value(element));
    }
    out_->append(separator == '[' ? "[]" : "]");
    return *this;
  }

 private:
  void Key(std::string_view key) { out_->append(",\"").append(key).append("\":"); }

  // Appends the shortest text that reads back as the same number.
  template <typename Number>
  void Append(Number value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
    SLUICE_CHECK(error == std::errc());
    out_->append(text, end);
  }

  std::string* const out_;
};

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path, const Start& start,
                                                       Callbacks callbacks) {
  Descriptor file(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() >= 0 && !MayBeJournal(file.get())) {
    return absl::FailedPreconditionError(
        absl::StrCat("engine.history.journal: ", path,
                     " is not a journal; name a journal or a file that does not exist"));
  }
  if (file.get() < 0) {
    return absl::UnavailableError(absl::StrCat(
        "engine.history.journal: ", path, ": ", std::strerror(errno),
        "; name a file in a folder that exists, and let the daemon read and write both"));
  }
  std::unique_ptr<Journal> journal(
      new Journal(path, std::move(file), start.most_bytes, std::move(callbacks)));
  const std::string line = StartLine(start);
  journal->Append(line.size(), [&](std::string* out) { out->append(line); });
  return journal;
}

std::shared_ptr<Journal::Turns> Journal::TurnsOf(const std::string& path) {
  static Mutex& mu = *new Mutex;
  static auto& all = *new std::map<std::string, std::weak_ptr<Turns>>;
  MutexLock lock(&mu);
  std::weak_ptr<Turns>& known = all[path];
  std::shared_ptr<Turns> turns = known.lock();
  if (turns == nullptr) known = turns = std::make_shared<Turns>();
  return turns;
}

Journal::Journal(std::string path, Descriptor file, int64_t most_bytes, Callbacks callbacks)
    : path_(std::move(path)),
      file_(std::move(file)),
      most_bytes_(most_bytes),
      callbacks_(std::move(callbacks)),
      turns_(TurnsOf(path_)) {
  buffer_.reserve(kBufferBytes);
  writing_.reserve(kBufferBytes);
  writer_.emplace(Clock::Real(), /*first=*/MonoTime::max(), [this] {
    WriteLines();
    return MonoTime::max();
  });
}

Journal::~Journal() {
  StopWriting();
  WriteLines();
  // If an earlier journal still has to write, the lines are lost.
  MutexLock writing(&file_mu_);
  EndTurn();
  MutexLock lock(&mu_);
  const int64_t lost = unreported_ + std::ranges::count(buffer_, '\n');
  if (lost > 0) callbacks_.lines_lost(lost);
}

void Journal::StartWriting() {
  MutexLock lock(&mu_);
  state_ = Writing::kOn;
  {
    MutexLock turns(&turns_->mu);
    turns_->queue.splice(turns_->queue.end(), place_);
  }
  writer_->Wake();
}

void Journal::StopWriting() {
  MutexLock lock(&mu_);
  if (state_ != Writing::kOn) return;
  state_ = Writing::kStopped;
  writer_->Wake();
}

bool Journal::HasTurn() const {
  MutexLock lock(&turns_->mu);
  return !turns_->queue.empty() && turns_->queue.front() == this;
}

void Journal::EndTurn() {
  MutexLock lock(&turns_->mu);
  std::list<Journal*>& queue = turns_->queue;
  const auto own = std::ranges::find(queue, this);
  if (own == queue.end()) return;
  flock(file_.get(), LOCK_UN);
  place_.splice(place_.end(), queue, own);
  if (!queue.empty()) queue.front()->writer_->Wake();
}

template <typename Write>
void Journal::Append(size_t most_bytes, const Write& write) {
  MutexLock lock(&mu_);
  const bool full = buffer_.capacity() - buffer_.size() < most_bytes + kPlainLine;
  const bool stopped = state_ == Writing::kStopped;
  if (full || stopped) {
    ++unwritten_gap_;
    if (!stopped) ++unreported_;
    return;
  }
  const bool idle = buffer_.empty();
  if (unwritten_gap_ > 0) {
    Line(&buffer_, "dropped").Add("lines", std::exchange(unwritten_gap_, 0));
  }
  write(&buffer_);
  if (idle) writer_->Wake();
}

void Journal::OnPush(const WaitingSequence& sequence, bool arrival) {
  Append(kPlainLine, [&](std::string* out) {
    Line line(out, "push");
    line.Add("arrival", arrival)
        .Add("ticket", sequence.ticket)
        .Add("priority", sequence.priority)
        .Add("first", sequence.first_position)
        .Add("tokens", sequence.tokens)
        .Add("later", sequence.later_tokens)
        .Add("sampled", sequence.sampled_rows)
        .Add("pages", sequence.pages)
        .Add("running", sequence.running)
        .Add("generates", sequence.generates)
        .Add("steps", sequence.expected_steps)
        .AddTime("queued", sequence.queued)
        .AddTime("deadline", sequence.deadline)
        .Add("overtaken", sequence.overtaken);
    if (sequence.caller != 0) line.Add("caller", sequence.caller);
    if (sequence.adapter != 0) line.Add("adapter", sequence.adapter);
    if (!arrival && sequence.deferred.count() != 0) line.Add("deferred", sequence.deferred.count());
    if (sequence.reach == AttentionReach()) return;
    line.Add("window", sequence.reach.window).Add("windowed", sequence.reach.windowed);
  });
}

void Journal::OnRemove(const WaitingSequence& sequence) {
  Append(kPlainLine, [&](std::string* out) { Line(out, "remove").Add("ticket", sequence.ticket); });
}

void Journal::OnRevise(const WaitingSequence& sequence, const NextStep& next) {
  Append(kPlainLine, [&](std::string* out) {
    Line(out, "revise")
        .Add("ticket", sequence.ticket)
        .Add("first", next.first_position)
        .Add("tokens", next.tokens)
        .Add("later", next.later_tokens)
        .Add("sampled", next.sampled_rows)
        .Add("pages", next.pages)
        .Add("running", next.running);
  });
}

void Journal::OnDecide(const DecisionTime& at, const BatchDecision& decision,
                       std::span<WaitingSequence* const> batch) {
  Append(kPlainLine + batch.size() * kNumber, [&](std::string* out) {
    const BatchSize& size = decision.size;
    Line(out, "decide")
        .AddTime("now", at.now)
        .Add("draining", at.draining)
        .Add("ahead", at.ahead)
        .Add("pages", at.available_pages)
        .Add("launch", decision.launch)
        .AddList("size", std::array{size.tokens, size.sequences, size.longest},
                 [](int32_t value) { return value; })
        .Add("bucket", decision.bucket)
        .Add("trigger", static_cast<int>(decision.trigger))
        .AddTime("until", decision.wait_until)
        .Add("reason", static_cast<int>(decision.wait_reason))
        .AddList("batch", batch, [](const WaitingSequence* sequence) { return sequence->ticket; });
  });
}

void Journal::OnObserve(const StepShape& step, double seconds) {
  Append(kPlainLine, [&](std::string* out) {
    Line line(out, "observe");
    line.Add("bucket", step.bucket)
        .Add("computed", step.computed_tokens)
        .Add("context", step.context_tokens)
        .Add("positions", step.distinct_positions)
        .Add("sampled", step.sampled_rows)
        .Add("seconds", seconds);
    if (step.distinct_adapters != 0) line.Add("adapters", step.distinct_adapters);
  });
}

void Journal::OnLadder(const Ladder& ladder) {
  const std::span<const Bucket> buckets = ladder.buckets();
  Append(kPlainLine + 3 * buckets.size() * kNumber, [&](std::string* out) {
    Line(out, "ladder")
        .AddList("tokens", buckets, [](const Bucket& bucket) { return bucket.tokens; })
        .AddList("sequences", buckets, [](const Bucket& bucket) { return bucket.sequences; })
        .AddList("positions", buckets, [](const Bucket& bucket) { return bucket.positions; });
  });
}

void Journal::WriteLines() {
  MutexLock writing(&file_mu_);
  if (!HasTurn()) return;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (buffer_.empty()) {
        if (state_ != Writing::kStopped) return;
        bytes_ = -1;
        return EndTurn();
      }
      writing_.swap(buffer_);
    }
    const absl::Status written = WriteAll(writing_);
    int64_t lost = written.ok() ? 0 : std::count(writing_.begin(), writing_.end(), '\n');
    writing_.clear();
    {
      MutexLock lock(&mu_);
      unwritten_gap_ += lost;
      lost += std::exchange(unreported_, 0);
    }
    if (lost > 0) callbacks_.lines_lost(lost);
    if (std::exchange(noticed_loss_, lost > 0) || lost == 0) continue;
    callbacks_.notice(absl::StrCat("the journal loses lines: ", path_, ": ",
                                   written.ok() ? "the disk is too slow" : written.message()));
  }
}

absl::Status Journal::WriteAll(std::string_view lines) {
  if (bytes_ < 0) {
    bytes_ = CutToLines(file_.get());
    if (bytes_ < 0) {
      const std::string error = std::strerror(errno);
      callbacks_.write_failed();
      return absl::UnavailableError(absl::StrCat("cannot cut off a partial line: ", error));
    }
    // Held until EndTurn. Only Sluice's processes see the lock, and it does not stop them.
    if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      callbacks_.notice(
          absl::StrCat("another process writes the journal ", path_,
                       ", which mixes their lines; give each daemon a file of its own "
                       "(engine.history.journal)"));
    }
  }
  if (bytes_ + std::ssize(lines) > most_bytes_) {
    bytes_ = most_bytes_;  // do not append later lines that are short enough to fit
    return absl::ResourceExhaustedError(
        absl::StrCat("it has reached engine.history.journal_bytes, ", most_bytes_,
                     "; to start a new journal, move the file away and reload the model"));
  }
  std::string_view rest = lines;
  absl::Status status;
  while (!rest.empty() && status.ok()) {
    const ssize_t written = write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) status = absl::ErrnoToStatus(errno, "cannot write");
    if (written == 0) status = absl::UnavailableError("cannot write");
    rest.remove_prefix(std::max<ssize_t>(written, 0));
  }
  if (status.ok()) {
    bytes_ += std::ssize(lines);
    return status;
  }
  callbacks_.write_failed();
  if (rest.size() < lines.size() && ftruncate(file_.get(), bytes_) != 0) {
    bytes_ = most_bytes_;  // lines after a partial line could not be read
  }
  return status;
}

}  // namespace sluice
