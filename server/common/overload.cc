#include "server/common/overload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/reason.h"

namespace sluice {
namespace {

// Each level starts at this percentage of the limit.
constexpr int64_t kNoConnectionsPercent = 85;
constexpr int64_t kNoRequestsPercent = 90;
constexpr int64_t kCutAnswersPercent = 95;

}  // namespace

void Overload::Look() {
  const int64_t resident = parts_.resident();
  const int64_t percent = limit() / 100;
  resident_.store(resident, std::memory_order_relaxed);
  Level level = Level::kNone;
  if (resident >= kNoConnectionsPercent * percent) level = Level::kNoConnections;
  if (resident >= kNoRequestsPercent * percent) level = Level::kNoRequests;
  if (resident >= kCutAnswersPercent * percent) level = Level::kCutAnswers;
  level_.store(level, std::memory_order_relaxed);
  if (level == Level::kCutAnswers) parts_.cut(resident - kNoRequestsPercent * percent);
}

absl::Status Overload::Refusal() const {
  return ReasonError(Reason::kMemory,
                     absl::StrCat("the daemon uses ", resident(), " bytes of its limit of ",
                                  limit(), " (server.memory.limit_bytes); retry later"));
}

}  // namespace sluice
