#include "kernels/cuda/copy_pages.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/kv_cache.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class CopyPagesTest : public OpTest {};
TYPED_TEST_SUITE(CopyPagesTest, DTypes);

// Some heads allow accesses of 16 bytes, others do not.
TYPED_TEST(CopyPagesTest, TheFirstPositionsAreCopiedAndNoOthers) {
  using T = TypeParam;
  constexpr int32_t kMatrices = 4, kPages = 23, kCopies = 9;
  for (const auto& [kv_heads, head_dim] : {std::pair{2, 8}, {1, 3}, {3, 64}}) {
    SCOPED_TRACE(testing::Message()
                 << kv_heads << " heads of " << head_dim << ", seed " << this->kSeed);
    const int64_t page = int64_t{kv_heads} * kPageTokens * head_dim;
    const auto before = RandomValues<T>(this->random_, kMatrices * kPages * page);
    std::vector<int32_t> ids(kPages);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), this->random_);
    std::vector<PageCopy> copies;  // some from the same page
    for (int32_t i = 0; i < kCopies; ++i) {
      copies.push_back(
          {.from = ids[kCopies + i / 2],
           .to = ids[i],
           .positions = 1 + static_cast<int32_t>(this->random_() % (kPageTokens - 1))});
    }
    T* const kv = this->lab_.Put(before);
    CopyPages<T>(this->lab_.stream(), {.kv = kv,
                                       .matrices = kMatrices,
                                       .pages = kPages,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .copies = this->lab_.Put(copies),
                                       .rows = this->Live(kCopies)});
    std::vector<T> expected = before;
    for (const PageCopy& copy : copies) {
      for (int32_t head = 0; head < kMatrices * kv_heads; ++head) {
        const int64_t matrix = head / kv_heads * kPages * page;
        const int64_t begin = matrix + head % kv_heads * kPageTokens * head_dim;
        std::copy_n(before.begin() + begin + copy.from * page, copy.positions * head_dim,
                    expected.begin() + begin + copy.to * page);
      }
    }
    EXPECT_TRUE(SameBits(this->lab_.Get(kv, kMatrices * kPages * page), expected));
    this->lab_.Clear();
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
