#include "kernels/simt/costs.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace sluice::simt {
namespace {

constexpr int32_t kLanes = 32, kBanks = 32;
constexpr size_t kWordBytes = 4, kSectorBytes = 32, kWidest = 16;

thread_local CostMeter* current_meter = nullptr;

// Returns the largest power of two up to 16 that divides the address and is within `bytes`.
size_t WidestAccess(uintptr_t address, size_t bytes) {
  const size_t aligned = address == 0 ? kWidest : address & -address;
  return std::min({kWidest, aligned, std::bit_floor(bytes)});
}

}  // namespace

CostMeter::CostMeter() : outer_(std::exchange(current_meter, this)) {}
CostMeter::~CostMeter() { current_meter = outer_; }

CostMeter* CostMeter::Current() { return current_meter; }

void CostMeter::BeginLaunch(const kernels::cuda::Kernel& kernel,
                            const kernels::cuda::LaunchShape& shape) {
  LaunchCosts& costs = launches_.emplace_back();
  costs.kernel = kernel.name;
  costs.blocks = shape.blocks;
  global_atomics_.clear();
  shared_atomics_.clear();
  warps_.assign(shape.threads / kLanes, {});
  block_works_ = false;
}

void CostMeter::EndBlock() {
  for (std::vector<Note>& notes : warps_) Conclude(notes);
  if (block_works_) ++launches_.back().working_blocks;
  block_works_ = false;
  shared_atomics_.clear();
}

void CostMeter::Access(int32_t thread, const void* site, Space space, Kind kind, uintptr_t address,
                       size_t bytes) {
  Note note = {.site = site,
               .address = address,
               .bytes = 0,
               .lane = static_cast<uint8_t>(thread % kLanes),
               .event = Event::kAccess,
               .space = space,
               .kind = kind};
  while (bytes > 0) {
    const size_t width = WidestAccess(note.address, bytes);
    note.bytes = static_cast<uint32_t>(width);
    Add(thread, note);
    note.address += width;
    bytes -= width;
  }
}

void CostMeter::Copy(int32_t thread, const void* site, uintptr_t to, uintptr_t from, size_t bytes) {
  const auto lane = static_cast<uint8_t>(thread % kLanes);
  Add(thread, {.site = site,
               .address = from,
               .bytes = static_cast<uint32_t>(bytes),
               .lane = lane,
               .event = Event::kCopy,
               .space = Space::kGlobal,
               .kind = Kind::kRead});
  Add(thread, {.site = site,
               .address = to,
               .bytes = kWidest,
               .lane = lane,
               .event = Event::kCopy,
               .space = Space::kShared,
               .kind = Kind::kWrite});
}

void CostMeter::Other(int32_t thread, const void* site) {
  Add(thread, {.site = site,
               .address = 0,
               .bytes = 0,
               .lane = static_cast<uint8_t>(thread % kLanes),
               .event = Event::kOther,
               .space = Space::kGlobal,
               .kind = Kind::kRead});
}

void CostMeter::Meet(int32_t warp) {
  Conclude(warps_[warp]);
  ++launches_.back().instructions;
}

// Puts the notes of a warp together as instructions, and counts these.
void CostMeter::Conclude(std::vector<Note>& notes) {
  const auto place = [](const Note& note) {
    const uint32_t width = note.event == Event::kCopy ? kWidest : note.bytes;
    return std::tuple(note.site, note.event, note.space, note.kind, width);
  };
  // The notes of a lane stay in their order.
  std::stable_sort(notes.begin(), notes.end(), [&](const Note& a, const Note& b) {
    return std::pair(place(a), a.lane) < std::pair(place(b), b.lane);
  });
  for (auto first = notes.begin(); first != notes.end();) {
    const auto end = std::find_if(first, notes.end(),
                                  [&](const Note& note) { return place(note) != place(*first); });
    for (int64_t i = 0;; ++i) {
      group_.clear();
      for (auto lane = first; lane != end;) {
        const auto next =
            std::find_if(lane, end, [&](const Note& note) { return note.lane != lane->lane; });
        if (i < next - lane) group_.push_back(&lane[i]);
        lane = next;
      }
      if (group_.empty()) break;
      Count(group_);
    }
    first = end;
  }
  notes.clear();
}

void CostMeter::Count(const Group& group) {
  LaunchCosts& costs = launches_.back();
  const Note& first = *group.front();
  const bool part_of_copy = first.event == Event::kCopy && first.space == Space::kShared;
  if (!part_of_copy) ++costs.instructions;
  if (first.event == Event::kOther) return;
  first.space == Space::kGlobal ? CountGlobal(group) : CountShared(group);
}

void CostMeter::CountGlobal(const Group& group) {
  LaunchCosts& costs = launches_.back();
  const Note& first = *group.front();
  if (first.kind != Kind::kRead) block_works_ = true;
  const size_t width = first.event == Event::kCopy ? kWidest : first.bytes;
  ++costs.widths[std::bit_width(width) - 1];
  std::array<std::pair<uintptr_t, uintptr_t>, kLanes> ranges;  // the bytes of each lane
  size_t count = 0;
  for (const Note* note : group) {
    costs.bytes += note->bytes;
    if (note->bytes > 0) ranges[count++] = {note->address, note->address + note->bytes};
  }
  std::sort(ranges.begin(), ranges.begin() + count);
  uintptr_t seen = 0, next_sector = 0;  // the end of the bytes and sectors that are counted
  size_t distinct = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto [begin, end] = ranges[i];
    if (end > seen) distinct += end - std::max(begin, seen);
    seen = std::max(seen, end);
    const uintptr_t from = std::max(next_sector, begin / kSectorBytes);
    const uintptr_t until = (end + kSectorBytes - 1) / kSectorBytes;
    if (until > from) costs.sectors += static_cast<int64_t>(until - from);
    next_sector = std::max(next_sector, until);
  }
  costs.ideal_sectors += static_cast<int64_t>((distinct + kSectorBytes - 1) / kSectorBytes);
  if (first.kind == Kind::kAtomic) CountAtomics(group, costs.global_atomics, global_atomics_);
}

void CostMeter::CountShared(const Group& group) {
  LaunchCosts& costs = launches_.back();
  const Note& first = *group.front();
  const int32_t lanes = first.bytes <= kWordBytes ? kLanes
                                                  : kLanes * static_cast<int32_t>(kWordBytes) /
                                                        static_cast<int32_t>(first.bytes);
  std::vector<uintptr_t> words;
  for (int32_t part = 0; part < kLanes; part += lanes) {
    words.clear();
    for (const Note* note : group) {
      if (note->lane / lanes * lanes != part) continue;
      for (size_t i = 0; i < note->bytes; i += kWordBytes) {
        words.push_back((note->address + i) / kWordBytes);
      }
    }
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int64_t, kBanks> banks = {};
    for (const uintptr_t word : words) ++banks[word % kBanks];
    const int64_t passes = *std::max_element(banks.begin(), banks.end());
    costs.wavefronts += passes;
    costs.conflicts += passes - 1;
  }
  if (first.kind == Kind::kAtomic) CountAtomics(group, costs.shared_atomics, shared_atomics_);
}

void CostMeter::CountAtomics(const Group& group, AtomicCosts& costs,
                             std::unordered_map<uintptr_t, int64_t>& counts) {
  for (const Note* note : group) {
    ++costs.count;
    costs.worst_in_launch = std::max(costs.worst_in_launch, ++counts[note->address]);
    const int64_t same = std::count_if(group.begin(), group.end(), [note](const Note* other) {
      return other->address == note->address;
    });
    costs.worst_in_warp = std::max(costs.worst_in_warp, same);
  }
}

}  // namespace sluice::simt
