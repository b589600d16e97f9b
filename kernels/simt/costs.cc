#include "kernels/simt/costs.h"

#include <algorithm>
#include <bit>

namespace sluice::simt {
namespace {

constexpr int32_t kBanks = 32;
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

size_t CostMeter::Hash::operator()(const Instruction& instruction) const {
  const size_t kinds = static_cast<size_t>(instruction.event) << 2 |
                       static_cast<size_t>(instruction.space) << 4 |
                       static_cast<size_t>(instruction.kind) << 5;
  return reinterpret_cast<uintptr_t>(instruction.site) * 1024 + kinds * 32 + instruction.width;
}

void CostMeter::BeginLaunch(const kernels::cuda::Kernel& kernel,
                            const kernels::cuda::LaunchShape& shape) {
  LaunchCosts& costs = launches_.emplace_back();
  costs.kernel = kernel.name;
  costs.blocks = shape.blocks;
  global_atomics_.clear();
  shared_atomics_.clear();
  warps_.clear();
  warps_.resize(shape.threads / kLanes);
  block_works_ = false;
}

void CostMeter::EndBlock() {
  LaunchCosts& launch = launches_.back();
  for (Warp& warp : warps_) {
    Conclude(warp);
    if (warp.costs.all() > launch.busiest_warp.all()) launch.busiest_warp = warp.costs;
    warp.costs = {};
  }
  if (block_works_) ++launch.working_blocks;
  block_works_ = false;
  shared_atomics_.clear();
}

void CostMeter::Access(int32_t thread, const void* site, Space space, Kind kind, uintptr_t address,
                       size_t bytes) {
  while (bytes > 0) {
    const size_t width = WidestAccess(address, bytes);
    Note(thread, {site, static_cast<uint32_t>(width), Event::kAccess, space, kind}, address, width);
    address += width;
    bytes -= width;
  }
}

void CostMeter::Copy(int32_t thread, const void* site, uintptr_t to, uintptr_t from, size_t bytes) {
  Note(thread, {site, kWidest, Event::kCopy, Space::kGlobal, Kind::kRead}, from, bytes);
  Note(thread, {site, kWidest, Event::kCopy, Space::kShared, Kind::kWrite}, to, kWidest);
}

void CostMeter::Bulk(uintptr_t from, size_t bytes) {
  LaunchCosts& costs = launches_.back();
  const uintptr_t end = (from + bytes + kSectorBytes - 1) / kSectorBytes;
  costs.bytes += static_cast<int64_t>(bytes);
  costs.sectors += static_cast<int64_t>(end - from / kSectorBytes);
  costs.ideal_sectors += static_cast<int64_t>((bytes + kSectorBytes - 1) / kSectorBytes);
  costs.wavefronts += static_cast<int64_t>((bytes - 1) / (kBanks * kWordBytes) + 1);
  ++costs.bulk_copies;
}

void CostMeter::Other(int32_t thread, const void* site) {
  Note(thread, {site, 0, Event::kOther, Space::kGlobal, Kind::kRead}, 0, 0);
}

void CostMeter::Note(int32_t thread, const Instruction& instruction, uintptr_t address,
                     size_t bytes) {
  Warp& warp = warps_[thread / kLanes];
  const int32_t lane = thread % kLanes;
  const size_t place =
      reinterpret_cast<uintptr_t>(instruction.site) + static_cast<size_t>(instruction.space);
  Entry*& entry = warp.recent[place % warp.recent.size()];
  if (entry == nullptr || !(entry->first == instruction)) {
    entry = &*warp.instructions.try_emplace(instruction).first;
  }
  Rounds& rounds = entry->second;
  const uint32_t number = rounds.count[lane]++;
  if (number == rounds.rounds.size()) rounds.rounds.emplace_back();
  Round& round = rounds.rounds[number];
  if (number == 0 && round.lanes == 0) warp.running.push_back(entry);
  round.lanes |= 1u << lane;
  round.bytes[lane] = static_cast<uint8_t>(bytes);
  round.addresses[lane] = address;
}

void CostMeter::Meet(int32_t warp) {
  Conclude(warps_[warp]);
  ++launches_.back().instructions;
  ++warps_[warp].costs.others;
  met_ = warp;
}

void CostMeter::Product() {
  ++launches_.back().products;
  ++warps_[met_].costs.products;
  --warps_[met_].costs.others;
}

void CostMeter::Accessed() {
  --launches_.back().instructions;
  --warps_[met_].costs.others;
}

// Counts the instructions of the warp since its lanes last met.
void CostMeter::Conclude(Warp& warp) {
  for (Entry* const entry : warp.running) {
    auto& [instruction, rounds] = *entry;
    for (Round& round : rounds.rounds) {
      if (round.lanes == 0) break;
      Count(warp, instruction, round);
      round.lanes = 0;
    }
    rounds.count.fill(0);
  }
  warp.running.clear();
}

void CostMeter::Count(Warp& warp, const Instruction& instruction, const Round& round) {
  const bool is_other = instruction.event == Event::kOther;
  const bool is_shared = instruction.space == Space::kShared;
  const bool part_of_copy = instruction.event == Event::kCopy && is_shared;
  if (!part_of_copy) {
    ++launches_.back().instructions;
    ++(is_other ? warp.costs.others : is_shared ? warp.costs.shared : warp.costs.global);
  }
  if (is_other) return;
  is_shared ? CountShared(instruction, round) : CountGlobal(instruction, round);
}

void CostMeter::CountGlobal(const Instruction& instruction, const Round& round) {
  LaunchCosts& costs = launches_.back();
  if (instruction.kind != Kind::kRead) block_works_ = true;
  ++costs.widths[std::bit_width(instruction.width) - 1];
  std::array<std::pair<uintptr_t, uintptr_t>, kLanes> ranges;  // the bytes of each lane
  size_t count = 0;
  for (uint32_t left = round.lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    costs.bytes += round.bytes[lane];
    if (round.bytes[lane] == 0) continue;
    ranges[count++] = {round.addresses[lane], round.addresses[lane] + round.bytes[lane]};
  }
  std::sort(ranges.begin(), ranges.begin() + count);
  uintptr_t seen = 0, next_sector = 0;  // the ends of the bytes and sectors that are counted
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
  if (instruction.kind == Kind::kAtomic) {
    CountAtomics(round, costs.global_atomics, global_atomics_);
  }
}

void CostMeter::CountShared(const Instruction& instruction, const Round& round) {
  LaunchCosts& costs = launches_.back();
  const uint32_t words_each = (instruction.width + kWordBytes - 1) / kWordBytes;
  const int32_t lanes = kLanes / static_cast<int32_t>(words_each);  // lanes that pass together
  for (int32_t first = 0; first < kLanes; first += lanes) {
    std::array<uintptr_t, kLanes> words;  // distinct words
    std::array<int64_t, kBanks> banks = {};
    size_t count = 0;
    int64_t passes = 0;
    for (int32_t lane = first; lane < first + lanes; ++lane) {
      if ((round.lanes >> lane & 1) == 0) continue;
      for (uint32_t i = 0; i < words_each; ++i) {
        const uintptr_t word = round.addresses[lane] / kWordBytes + i;
        const bool bank_in_use = banks[word % kBanks] > 0;
        if (bank_in_use &&
            std::find(words.begin(), words.begin() + count, word) != words.begin() + count) {
          continue;
        }
        words[count++] = word;
        passes = std::max(passes, ++banks[word % kBanks]);
      }
    }
    if (passes == 0) continue;
    costs.wavefronts += passes;
    costs.conflicts += passes - 1;
  }
  if (instruction.kind == Kind::kAtomic) {
    CountAtomics(round, costs.shared_atomics, shared_atomics_);
  }
}

void CostMeter::CountAtomics(const Round& round, AtomicCosts& costs, AtomicCounts& counts) {
  for (uint32_t left = round.lanes; left != 0; left &= left - 1) {
    const uintptr_t address = round.addresses[std::countr_zero(left)];
    int64_t same = 0;
    for (uint32_t others = round.lanes; others != 0; others &= others - 1) {
      if (round.addresses[std::countr_zero(others)] == address) ++same;
    }
    ++costs.count;
    costs.worst_in_warp = std::max(costs.worst_in_warp, same);
    costs.worst_in_launch = std::max(costs.worst_in_launch, ++counts[address]);
  }
}

}  // namespace sluice::simt
