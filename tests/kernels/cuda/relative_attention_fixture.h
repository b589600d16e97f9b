// Runs disentangled attention on a device.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/relative_attention.h"
#include "tests/kernels/common/relative_heads.h"
#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {

inline RelativeTable table_of_run;  // read by RunWithTable

template <typename T>
void RunWithTable(Stream& stream, const AttentionArgs<T>& args) {
  RelativeAttention<T>(stream, {.op = args, .table = table_of_run});
}

// Runs attention with the tables of `shape`.
template <typename T>
AttentionOutputs<T> RunRelativeAttention(DeviceLab& lab, std::mt19937_64& random,
                                         const reference::AttentionShape& shape,
                                         const std::vector<SequenceCase<T>>& cases,
                                         AttentionDevice device = {}) {
  const auto put = [&lab](std::span<const double> values) {
    return lab.PutOrNull(std::vector<float>(values.begin(), values.end()));
  };
  const std::span<const int32_t> row_of = shape.relative.row_of;
  table_of_run = {.keys = put(shape.relative.keys),
                  .queries = put(shape.relative.queries),
                  .row_of = lab.Put(std::vector<int32_t>(row_of.begin(), row_of.end())),
                  .positions = static_cast<int32_t>(std::ssize(row_of) / 2)};
  return RunAttention<T>(lab, random, shape, cases, false, {}, device, &RunWithTable<T>);
}

}  // namespace sluice::kernels::cuda
