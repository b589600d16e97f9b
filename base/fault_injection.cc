#include "base/fault_injection.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace sluice {
namespace fault_internal {
std::atomic<bool> on{false};
}

namespace {

constexpr int64_t kMaxDelayMs = 3'600'000;

enum class Action { kDelay, kFail, kHang, kUntil, kNan, kIllegalAccess };

// The actions that the caller performs itself.
bool IsCallers(Action action) { return action >= Action::kNan; }

struct Fault {
  FaultPoint point = FaultPoint::kAdmit;
  std::string id;  // empty for any
  Action action = Action::kDelay;
  std::chrono::milliseconds delay{0};
  absl::StatusCode code = absl::StatusCode::kInternal;
  std::string file;
  int64_t left = std::numeric_limits<int64_t>::max();
};

constexpr std::pair<absl::string_view, absl::StatusCode> kFailures[] = {
    {"resource_exhausted", absl::StatusCode::kResourceExhausted},
    {"internal", absl::StatusCode::kInternal},
    {"unavailable", absl::StatusCode::kUnavailable}};

template <typename T, size_t n>
bool Find(const std::pair<absl::string_view, T> (&table)[n], absl::string_view name, T* value) {
  for (const auto& [known, meant] : table) {
    if (known != name) continue;
    *value = meant;
    return true;
  }
  return false;
}

bool ParsePoint(absl::string_view text, Fault* fault) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  const bool named = text.find('@') != absl::string_view::npos;
  fault->id = std::string(parts.second);
  const std::optional<FaultPoint> point =
      EnumOf<FaultPoint>({parts.first.data(), parts.first.size()});
  if (!point.has_value() || named == fault->id.empty()) return false;
  fault->point = *point;
  return !named || fault->point < FaultPoint::kLoad;
}

bool ParseAction(absl::string_view text, Fault* fault) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.first == "delay") {
    int64_t ms = 0;
    fault->action = Action::kDelay;
    const bool valid = absl::SimpleAtoi(parts.second, &ms) && ms >= 0 && ms <= kMaxDelayMs;
    fault->delay = std::chrono::milliseconds(ms);
    return valid;
  }
  if (parts.first == "fail") {
    fault->action = Action::kFail;
    return fault->point != FaultPoint::kDeliver && Find(kFailures, parts.second, &fault->code);
  }
  if (parts.first == "until") {
    fault->action = Action::kUntil;
    fault->file = std::string(parts.second);
    return !fault->file.empty();
  }
  if (text == "nan" || text == "illegal_access") {
    const bool nan = text == "nan";
    fault->action = nan ? Action::kNan : Action::kIllegalAccess;
    return fault->point == (nan ? FaultPoint::kDeliver : FaultPoint::kBeforeReplay);
  }
  fault->action = Action::kHang;
  return text == "hang";
}

absl::StatusOr<Fault> ParseFault(absl::string_view text) {
  Fault fault;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::pair<absl::string_view, absl::string_view> action =
      absl::StrSplit(parts.second, absl::MaxSplits('*', 1));
  const bool counted = parts.second.find('*') != absl::string_view::npos;
  if (ParsePoint(parts.first, &fault) && ParseAction(action.first, &fault) &&
      (!counted || (absl::SimpleAtoi(action.second, &fault.left) && fault.left > 0))) {
    return fault;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      kFaultsVariable, ": '", text, "' is not a valid fault; expected POINT[@ID]:ACTION[*COUNT]"));
}

class Faults {
 public:
  void Replace(std::vector<Fault> faults) {
    MutexLock lock(&mu_);
    faults_ = std::move(faults);
    ++generation_;
    changed_.SignalAll();
    fault_internal::on.store(!faults_.empty(), std::memory_order_relaxed);
  }

  // Takes the first fault that applies and counts one use of it. If `action` is set, looks for a
  // fault of this action, which the caller performs; otherwise for a fault whose action is
  // performed here.
  std::optional<Fault> Take(FaultPoint point, std::optional<Action> action,
                            const Concerns& concerns) {
    MutexLock lock(&mu_);
    for (Fault& fault : faults_) {
      const bool fits = fault.point == point &&
                        (action.has_value() ? fault.action == *action : !IsCallers(fault.action));
      if (!fits || fault.left == 0 || !(fault.id.empty() || concerns(fault.id))) continue;
      --fault.left;
      return fault;
    }
    return std::nullopt;
  }

  void Hang() {
    MutexLock lock(&mu_);
    const uint64_t generation = generation_;
    while (generation_ == generation) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mu_);
};

void WaitForFile(const std::string& file) {
  constexpr std::chrono::milliseconds kPoll{1};
  std::ofstream met(file + ".met");
  met.close();
  std::error_code ignored;
  while (!std::filesystem::exists(file, ignored)) std::this_thread::sleep_for(kPoll);
}

// Returns the faults. They are never destroyed, since a thread may hang in them when the process
// exits.
Faults& All() {
  static Faults* const faults = new Faults;
  return *faults;
}

}  // namespace

absl::Status SetFaults(std::string_view text) {
  std::vector<Fault> faults;
  for (absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ';', absl::SkipEmpty())) {
    SLUICE_ASSIGN_OR_RETURN(Fault fault, ParseFault(part));
    faults.push_back(std::move(fault));
  }
  All().Replace(std::move(faults));
  return absl::OkStatus();
}

absl::Status InjectFault(FaultPoint point, const Concerns& concerns) {
  const std::optional<Fault> fault = All().Take(point, std::nullopt, concerns);
  if (!fault.has_value()) return absl::OkStatus();
  switch (fault->action) {
    case Action::kDelay:
      std::this_thread::sleep_for(fault->delay);
      return absl::OkStatus();
    case Action::kHang:
      All().Hang();
      return absl::OkStatus();
    case Action::kUntil:
      WaitForFile(fault->file);
      return absl::OkStatus();
    case Action::kFail:
      return absl::Status(fault->code, "a test's fault");
    case Action::kNan:
    case Action::kIllegalAccess:
      break;
  }
  return absl::OkStatus();
}

bool InjectNan(std::string_view id) {
  return All()
      .Take(FaultPoint::kDeliver, Action::kNan,
            [id](std::string_view named) { return named == id; })
      .has_value();
}

bool InjectIllegalAccess(const Concerns& concerns) {
  return All().Take(FaultPoint::kBeforeReplay, Action::kIllegalAccess, concerns).has_value();
}

}  // namespace sluice
