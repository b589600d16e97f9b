#include "engine/runner/steps/step_records.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {
namespace {

// The expected requests of a step.
struct ExpectedRequests {
  std::vector<std::shared_ptr<const RequestName>> named;
  int32_t requests = 0;

  bool operator==(const ExpectedRequests&) const = default;
};

// The test draws steps with more requests than are named, a third of them without an id. A step
// often has the same requests as the previous step.
TEST(StepRecords, StepsOfTheSameRequestsShareTheirList) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::shared_ptr<const Model> model = FakeModel(FakeConfig());
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<std::unique_ptr<ActiveRequest>> requests;
  for (size_t i = 0; i < CoBatchedRequests::kMaxNamed + 40; ++i) {
    Request request = RequestOf(model, {{1}, {2}}, 1);
    if (i % 3 > 0) Mutable(request.spec).id = "a";
    requests.push_back(
        std::make_unique<ActiveRequest>(std::move(request), sink, MonoTime(), MonoTime()));
  }
  StepRecords records(model.get(), ComputedRows::OfBatch(), /*observer=*/nullptr,
                      /*waits=*/nullptr);
  std::vector<bool> present(requests.size());
  std::shared_ptr<const CoBatchedRequests> before;
  ExpectedRequests expected_before;
  for (int step = 0; step < 2000; ++step) {
    if (step % 100 == 0) {
      const bool full = random() % 2 == 0;
      for (size_t i = 0; i < present.size(); ++i) present[i] = full || random() % 8 == 0;
    }
    for (size_t changes = random() % 3; changes > 0; --changes) {
      const size_t i = random() % present.size();
      present[i] = !present[i];
    }
    std::vector<RequestRow*> rows;
    ExpectedRequests expected;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!present[i]) continue;
      const size_t first = random() % 2;
      for (size_t row = first; row < 2; ++row) rows.push_back(&requests[i]->rows[row]);
      ++expected.requests;
      const auto& name = requests[i]->name;
      if (name != nullptr && expected.named.size() < CoBatchedRequests::kMaxNamed) {
        expected.named.push_back(name);
      }
    }
    const std::shared_ptr<const CoBatchedRequests> co_batched = records.CoBatched(rows);
    ASSERT_EQ(co_batched->requests, expected.requests);
    ASSERT_EQ(co_batched->named, expected.named);
    if (before != nullptr) {
      ASSERT_EQ(co_batched == before, expected == expected_before);
    }
    before = co_batched;
    expected_before = std::move(expected);
  }
}

}  // namespace
}  // namespace sluice
