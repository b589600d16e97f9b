#include "verify/npz.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

namespace sluice::verify {
namespace {

std::string Golden() {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/verify/golden.npz",
                     std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

TEST(NpzTest, ReadsAFileOfNumpy) {
  const auto arrays = ReadNpz(Golden());
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const Array& ids = arrays->at("input_ids");
  EXPECT_EQ(ids.shape, (std::vector<int64_t>{3, 12}));
  for (const double id : ids.values) EXPECT_TRUE(id >= 0 && id < 97);
  EXPECT_EQ(arrays->at("input_lengths").values, (std::vector<double>{7, 1, 12}));
  EXPECT_EQ(arrays->at("logits").shape, (std::vector<int64_t>{3, 12, 97}));
}

// Altered files are refused, or their arrays have as many values as their shapes need.
TEST(NpzTest, AlteredFilesAreRefusedOrConsistent) {
  const std::string golden = Golden();
  // Alters the most important bytes: the directory at the end, and the headers. Each entry has two
  // headers.
  int accepted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::string altered = golden;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t last = seed % 2 == 0 ? 200 : 3000;
      const size_t at = seed % 3 == 0 ? random() % 400 : altered.size() - 1 - random() % last;
      altered[at] = static_cast<char>(random() % 4 == 0 ? 0xFF : random());
    }
    if (seed % 7 == 0) altered.erase(random() % altered.size(), random() % 5000);
    const auto arrays = ReadNpz(altered);
    if (!arrays.ok()) continue;
    ++accepted;
    for (const auto& [name, array] : *arrays) {
      ASSERT_EQ(Product(array.shape), static_cast<int64_t>(array.values.size()));
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace sluice::verify
