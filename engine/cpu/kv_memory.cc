#include "engine/cpu/kv_memory.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "kernels/cpu/memory.h"

namespace sluice {
namespace {

// The memory of an array that is provided ahead.
constexpr int64_t kBytesAhead = int64_t{2} << 20;

int32_t PagesAhead(int32_t pages, int64_t page_bytes) {
  if (page_bytes == 0) return pages;
  return static_cast<int32_t>(std::min<int64_t>(CeilDiv(kBytesAhead, page_bytes), pages));
}

}  // namespace

KvMemory::KvMemory(FloatBuffer memory, int64_t arrays, int32_t pages, int64_t page_bytes)
    : memory_(std::move(memory)),
      arrays_(arrays),
      pages_(pages),
      page_bytes_(page_bytes),
      ahead_(PagesAhead(pages, page_bytes)),
      next_notice_(kNever) {
  if (memory_.bytes() == 0) return;
  RequestBehind(0);
  provider_ = std::thread([this] { ProvideRequested(); });
}

KvMemory::~KvMemory() {
  requested_ = kStop;
  requested_.notify_one();
  if (provider_.joinable()) provider_.join();
}

// Requests the next pages. The request after this one comes when half of these pages are used.
void KvMemory::RequestBehind(int32_t page) {
  const int32_t end = std::min(pages_ - page, ahead_) + page;
  next_notice_ = end < pages_ ? end - ahead_ / 2 : kNever;
  requested_ = end;
  requested_.notify_one();
}

void KvMemory::ProvideRequested() {
  int32_t provided = 0;
  for (int32_t end = requested_; end != kStop; end = requested_) {
    if (end == provided) {
      requested_.wait(end);
      continue;
    }
    for (int64_t array = 0; array < arrays_; ++array) {
      const int64_t first = array * pages_;
      kernels::ProvideMemory((first + provided) * page_bytes_, (first + end) * page_bytes_,
                             memory_.data(), memory_.bytes());
    }
    provided = end;
  }
}

}  // namespace sluice
