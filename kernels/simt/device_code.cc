#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernels/simt/machine.h"
#include "kernels/simt/product_sums.h"
#include "kernels/simt/simt.h"

// The compiler inserts calls of these functions at every load and store of device code
// (-fsanitize=thread). Host code compiled with the option also calls them; these calls are ignored.
namespace {
using sluice::simt::Access, sluice::simt::Machine;

template <size_t kBytes, Access kAccess>
[[gnu::noinline]] void TouchMemory(Machine& machine, uintptr_t address, const void* site) {
  if (machine.TouchQuickly(address, kBytes, kAccess, site)) return;
  machine.Touch(address, kBytes, kAccess, site);
}
}  // namespace

// The place in device code that called the current function.
#define SLUICE_SITE __builtin_return_address(0)

// Most accesses are to the thread's own stack.
#define SLUICE_ACCESS(name, bytes, access)                              \
  extern "C" void __tsan_##name##bytes(uintptr_t address) {             \
    Machine* const machine = Machine::Current();                        \
    if (machine == nullptr || machine->OnStack(address)) return;        \
    TouchMemory<bytes, Access::access>(*machine, address, SLUICE_SITE); \
  }
#define SLUICE_ACCESSES(bytes)                \
  SLUICE_ACCESS(read, bytes, kRead)           \
  SLUICE_ACCESS(write, bytes, kWrite)         \
  SLUICE_ACCESS(unaligned_read, bytes, kRead) \
  SLUICE_ACCESS(unaligned_write, bytes, kWrite)
SLUICE_ACCESSES(1)
SLUICE_ACCESSES(2)
SLUICE_ACCESSES(4)
SLUICE_ACCESSES(8)
SLUICE_ACCESSES(16)
extern "C" void __tsan_read_range(uintptr_t address, size_t bytes) {
  Machine* const machine = Machine::Current();
  if (machine != nullptr) machine->Touch(address, bytes, Access::kRead, SLUICE_SITE);
}
extern "C" void __tsan_write_range(uintptr_t address, size_t bytes) {
  Machine* const machine = Machine::Current();
  if (machine != nullptr) machine->Touch(address, bytes, Access::kWrite, SLUICE_SITE);
}
extern "C" void __tsan_init() {}

namespace sluice::simt {
namespace {

using kernels::cuda::CallSite;

Machine& Here() {
  Machine* machine = Machine::Current();
  SLUICE_CHECK(machine != nullptr);
  return *machine;
}

struct ExchangeIn {
  uint64_t bits;
  int32_t from;
};

void ExchangeLanes(const void* const in[32], void* const out[32]) {
  for (int i = 0; i < 32; ++i) {
    const int32_t from = static_cast<const ExchangeIn*>(in[i])->from;
    *static_cast<uint64_t*>(out[i]) = static_cast<const ExchangeIn*>(in[from])->bits;
  }
}

void GatherVotes(const void* const in[32], void* const out[32]) {
  uint32_t votes = 0;
  for (int i = 0; i < 32; ++i) {
    votes |= static_cast<uint32_t>(*static_cast<const bool*>(in[i])) << i;
  }
  for (int i = 0; i < 32; ++i) *static_cast<uint32_t*>(out[i]) = votes;
}

void MatchValues(const void* const in[32], void* const out[32]) {
  for (int i = 0; i < 32; ++i) {
    uint32_t same = 0;
    for (int j = 0; j < 32; ++j) {
      const bool equal =
          *static_cast<const uint32_t*>(in[j]) == *static_cast<const uint32_t*>(in[i]);
      same |= static_cast<uint32_t>(equal) << j;
    }
    *static_cast<uint32_t*>(out[i]) = same;
  }
}

struct MatricesOut {
  uint32_t* to;
  const void* row_of_another;  // a row that this lane also reads
};

template <bool kTransposed>
void LoadMatricesOfLanes(const void* const in[32], void* const out[32]) {
  for (int lane = 0; lane < 32; ++lane) {
    auto& loaded = *static_cast<MatricesOut*>(out[lane]);
    loaded.row_of_another = in[lane ^ 1];
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      uint16_t pair[2];
      for (int half = 0; half < 2; ++half) {
        const int row = kTransposed ? 2 * t + half : g, number = kTransposed ? g : 2 * t + half;
        std::memcpy(&pair[half], static_cast<const uint16_t*>(in[8 * i + row]) + number,
                    sizeof(pair[half]));
      }
      loaded.to[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  }
  if (CostMeter* meter = CostMeter::Current()) meter->Accessed();
}

struct Fragments {
  uint32_t a[4], b[2];
};

float BFloat16At(const uint32_t* words, int word, int half) {
  return std::bit_cast<float>(half == 0 ? words[word] << 16 : words[word] & 0xFFFF0000u);
}

struct Int8Factors {
  int16_t values[32];

  void Set(int i, int16_t value) { values[i] = value; }
};

int16_t Int8At(const uint32_t* words, int word, int byte) {
  return static_cast<int8_t>(words[word] >> (8 * byte));
}
int32_t AddInt8Products(const Int8Factors& a, const Int8Factors& b, int32_t c) {
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += a.values[i] * b.values[i];
  return static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(c));
}

// Multiplies matrices whose fragments have kEach numbers in a word, which `at` reads. `add` adds
// the products of a row and a column to a sum.
template <int kEach, typename Factors, typename Sum, typename At, typename Add>
void MultiplyAddFragments(const void* const in[32], void* const out[32], At at, Add add) {
  Factors a[16], b[8];  // rows of a and columns of b
  for (int lane = 0; lane < 32; ++lane) {
    const auto& fragments = *static_cast<const Fragments*>(in[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int part = 0; part < kEach; ++part) {
      const int k = t * kEach + part;
      for (int i = 0; i < 4; ++i) {
        a[g + i % 2 * 8].Set(k + i / 2 * 4 * kEach, at(fragments.a, i, part));
      }
      for (int i = 0; i < 2; ++i) b[g].Set(k + i * 4 * kEach, at(fragments.b, i, part));
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    Sum* d = static_cast<Sum*>(out[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      d[i] = add(a[row], b[column], d[i]);
    }
  }
  if (CostMeter* meter = CostMeter::Current()) meter->Product();
}

void MultiplyAddBFloat16(const void* const in[32], void* const out[32]) {
  MultiplyAddFragments<2, Factors, float>(in, out, &BFloat16At, &AddProducts);
}
void MultiplyAddInt8(const void* const in[32], void* const out[32]) {
  MultiplyAddFragments<4, Int8Factors, int32_t>(in, out, &Int8At, &AddInt8Products);
}

// Multiplies by all lanes of the warp.
void MultiplyTogether(WarpFunction function, void* d, const uint32_t* a, const uint32_t* b,
                      const CallSite& site) {
  Fragments in;
  std::memcpy(in.a, a, sizeof(in.a));
  std::memcpy(in.b, b, sizeof(in.b));
  Here().Collective(function, &in, d, site.file, site.line);
}

}  // namespace

int32_t ThreadIndex() { return Here().thread(); }
int32_t BlockThreads() { return Here().shape().threads; }
int32_t BlockIndex() { return Here().block(); }
int32_t GridBlocks() { return Here().shape().blocks; }

void WaitForPrevious() { Here().WaitForPrevious(); }

void Barrier(const CallSite& site) { Here().Barrier(site.file, site.line); }

void WarpBarrier(const CallSite& site) {
  Here().Collective(nullptr, nullptr, nullptr, site.file, site.line);
}

uint64_t Exchange(uint64_t bits, int32_t from, const CallSite& site) {
  if (from < 0 || from >= 32) Here().Fail("shuffles with lane " + std::to_string(from));
  const ExchangeIn in = {bits, from};
  uint64_t out;
  Here().Collective(&ExchangeLanes, &in, &out, site.file, site.line);
  return out;
}

uint32_t Vote(bool predicate, const CallSite& site) {
  uint32_t out;
  Here().Collective(&GatherVotes, &predicate, &out, site.file, site.line);
  return out;
}

uint32_t Match(uint32_t value, const CallSite& site) {
  uint32_t out;
  Here().Collective(&MatchValues, &value, &out, site.file, site.line);
  return out;
}

// All lanes read each row. The check reads it by the lane that passes its address and by one other
// lane: if both may read it, the whole warp may.
void LoadMatrices(const void* row, bool transposed, uint32_t* to, const CallSite& site) {
  Here().ReadSharedRow(row, SLUICE_SITE);
  MatricesOut out = {to, nullptr};
  Here().Collective(transposed ? &LoadMatricesOfLanes<true> : &LoadMatricesOfLanes<false>, row,
                    &out, site.file, site.line);
  Here().ReadSharedRow(out.row_of_another, nullptr);
}

std::byte* Shared(size_t bytes) { return Here().Shared(bytes); }

uint64_t AddAtomically(void* address, size_t bytes, uint64_t value) {
  Here().Touch(reinterpret_cast<uintptr_t>(address), bytes, Access::kAtomic, SLUICE_SITE);
  Here().NoteAtomic(reinterpret_cast<uintptr_t>(address));
  uint64_t before = 0;
  std::memcpy(&before, address, bytes);
  const uint64_t after = before + value;
  std::memcpy(address, &after, bytes);
  return before;
}

// Notes an access at a multiple of `bytes`, a power of two.
template <Access kAccess>
void TouchWhole(const void* memory, size_t bytes, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  Machine& machine = Here();
  const bool aligned = (address & (bytes - 1)) == 0;
  if (aligned && bytes == 16) return TouchMemory<16, kAccess>(machine, address, site);
  if (aligned && bytes == 8) return TouchMemory<8, kAccess>(machine, address, site);
  machine.Touch(address, bytes, kAccess, site, bytes);
}
void Load(void* to, const void* from, size_t bytes) {
  TouchWhole<Access::kRead>(from, bytes, SLUICE_SITE);
  std::memcpy(to, from, bytes);
}
void Store(void* to, const void* from, size_t bytes) {
  TouchWhole<Access::kWrite>(to, bytes, SLUICE_SITE);
  std::memcpy(to, from, bytes);
}

void CopyAsync(void* shared, const void* global, int32_t bytes) {
  Here().CopyAsync(shared, global, bytes, SLUICE_SITE);
}
void CommitCopies() { Here().CommitCopies(SLUICE_SITE); }
void WaitCopies(int pending_groups) { Here().WaitCopies(pending_groups, SLUICE_SITE); }

void Fence() { Here().Fence(SLUICE_SITE); }

void InitArrival(void* arrival, int32_t copies, bool by_warp) {
  Here().InitArrival(arrival, copies, by_warp, SLUICE_SITE);
}
void BulkCopy(void* shared, const void* global, int32_t bytes, void* arrival, bool by_warp) {
  Here().BulkCopy(shared, global, bytes, arrival, by_warp, SLUICE_SITE);
}
void WaitArrival(void* arrival, int32_t phase, const CallSite& site) {
  Here().WaitArrival(arrival, phase, site.file, site.line, SLUICE_SITE);
}

void MultiplyAdd(float* d, const uint32_t* a, const uint32_t* b, const CallSite& site) {
  MultiplyTogether(&MultiplyAddBFloat16, d, a, b, site);
}
void MultiplyAdd(int32_t* d, const uint32_t* a, const uint32_t* b, const CallSite& site) {
  MultiplyTogether(&MultiplyAddInt8, d, a, b, site);
}

uint32_t RoundToPair(float low, float high) {
  uint32_t pair = 0;
  for (const float x : {high, low}) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    pair = pair << 16 | rounded;
  }
  return pair;
}

float Exp2(float x) {
  const float power = std::exp2(x);
  return power < std::numeric_limits<float>::min() ? 0.0f : power;
}

}  // namespace sluice::simt
