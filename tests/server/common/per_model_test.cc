#include "server/common/per_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

namespace sluice {
namespace {

using std::chrono::seconds;

class PerModelTest : public ::testing::Test {
 protected:
  std::shared_ptr<int> Get(const std::string& name, int64_t version = 1) {
    return values_.Get(name, version, [] { return std::make_unique<int>(0); });
  }
  void Retire(const std::string& served, int second) {
    values_.Retire([&](std::string_view name, int64_t) { return name == served; },
                   MonoTime(seconds(second)), seconds(10));
  }

  PerModel<int> values_;
};

TEST_F(PerModelTest, AModelKeepsItsValueUntilSomeTimeAfterItIsUnloaded) {
  *Get("a") = 7;
  Retire("a", 0);
  Retire("a", 100);
  EXPECT_EQ(*Get("a"), 7);
  Retire("b", 101);
  Retire("b", 110);
  EXPECT_EQ(*Get("a"), 7) << "unserved for 9 s";
  Retire("b", 111);
  EXPECT_EQ(*Get("a"), 0);
}

TEST_F(PerModelTest, AModelThatIsServedAgainStartsFromZero) {
  *Get("a") = 7;
  Retire("b", 0);
  Retire("a", 9);
  Retire("b", 10);
  Retire("b", 19);
  EXPECT_EQ(*Get("a"), 7);
  Retire("b", 20);
  EXPECT_EQ(*Get("a"), 0);
}

TEST_F(PerModelTest, AValueThatIsInUseStays) {
  const std::shared_ptr<int> held = Get("a");
  *held = 7;
  Retire("b", 0);
  Retire("b", 60);
  EXPECT_EQ(Get("a"), held);
}

TEST_F(PerModelTest, VersionsHaveSeparateValues) {
  *Get("a", 1) = 1;
  *Get("a", 2) = 2;
  EXPECT_EQ(*Get("a", 1), 1);
  EXPECT_EQ(*Get("a", 2), 2);
}

}  // namespace
}  // namespace sluice
