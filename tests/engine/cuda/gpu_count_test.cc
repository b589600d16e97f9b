#include "engine/cuda/gpu_count.h"

#include <gtest/gtest.h>

#include "tests/support/table.h"

namespace sluice::testing {
namespace {

struct GpuCountRow {
  const char* name;
  GpuAnswers answers;
  absl::StatusOr<int> count;
};
class GpuCountTable : public TableTest<GpuCountRow> {};

TEST_P(GpuCountTable, ExplainsTheAnswers) {
  const auto count = CountOf(row().answers);
  EXPECT_EQ(count.status(), row().count.status());
  EXPECT_EQ(count.value_or(-1), row().count.value_or(-1));
}

const GpuCountRow kGpuCountRows[] = {
    {.name = "GpusAreCounted",
     .answers = {.count = 2, .driver_version = 13010, .runtime_version = 13000},
     .count = 2},
    {.name = "NoGpuIsNotAnError",
     .answers = {.error = "cudaErrorNoDevice",
                 .none_found = true,
                 .driver_version = 13000,
                 .runtime_version = 13000},
     .count = 0},
    {.name = "WithoutADriverTheRuntimeSaysThatItIsTooOld",
     .answers = {.error = "cudaErrorInsufficientDriver", .runtime_version = 13000},
     .count = absl::NotFoundError("this host has no NVIDIA driver")},
    {.name = "AnOldDriverIsNamedWithBothVersions",
     .answers = {.error = "cudaErrorInsufficientDriver",
                 .driver_version = 12040,
                 .runtime_version = 13000},
     .count = absl::FailedPreconditionError("the NVIDIA driver is too old: it supports CUDA 12.4, "
                                            "and this build needs CUDA 13.0")},
    {.name = "AnOlderMinorVersionThatWorksIsNotAnError",
     .answers = {.count = 1, .driver_version = 13000, .runtime_version = 13020},
     .count = 1},
    {.name = "AnotherErrorIsPassedOn",
     .answers = {.error = "cudaErrorSystemNotReady",
                 .driver_version = 13000,
                 .runtime_version = 13000},
     .count = absl::FailedPreconditionError("cudaErrorSystemNotReady")},
};
SLUICE_TABLE(GpuCountTable, kGpuCountRows);

}  // namespace
}  // namespace sluice::testing
