// Compares the quantised projections of a model, as a step computes them, with a statement of each.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/cpu/cpu_model.h"
#include "kernels/cpu/kv_cache.h"
#include "tests/engine/cpu/runner.h"

namespace sluice::testing {

// Returns the index of the matrix that multiplies a row of the op's input.
inline int64_t MatrixOf(const Model& model, const LinearOp& op, const StepRun& run, int64_t row) {
  if (op.one_matrix()) return 0;
  if (op.position_wise()) return run.batch.positions()[row];
  const kernels::Routes routes = run.routes(op.matrices, model.config.experts.chosen);
  int64_t expert = 0;
  while (row >= routes.groups[expert].first_row + routes.groups[expert].count) ++expert;
  return expert;
}

inline float Bias(const Model& model, const LinearOp& op, int64_t matrix, int64_t col) {
  if (!op.bias.present()) return 0;
  const Tensor tensor = model.checkpoint.Find(op.bias.name, op.bias.shape).value();
  const int64_t row = op.bias_each ? matrix : 0;
  return kernels::LoadAsFloat(tensor.data, tensor.dtype,
                              row * model.graph.buffers[op.out].width + col);
}

// Returns the result of an input row for a column of a matrix.
using ColumnProduct =
    std::function<float(const LinearOp& op, int64_t matrix, int64_t col, std::span<const float> x)>;

// Checks every projection of a step of a random prompt bit by bit, except routers, which are not
// quantised. Returns the number of projections.
inline int CheckProjections(const std::shared_ptr<const Model>& model, const std::string& profile,
                            const ColumnProduct& product) {
  constexpr int32_t kRowsOfStep = 9;
  Runner runner(model, {.threads = 2, .profile = profile, .poison = true}, {kRowsOfStep, 1});
  const auto& executable = static_cast<const CpuModel&>(runner.executable());
  const auto plan = executable.Prepare({kRowsOfStep, 1});
  std::mt19937_64 random(6);
  const std::vector<int32_t> tokens = RandomTokens(random, kRowsOfStep, model->config.vocab_size);
  std::vector<int32_t> pages(kernels::kPageTokens, 0);
  const StepSequence sequence{0, kRowsOfStep, tokens.data(), pages.data()};
  StepBatch batch(kRowsOfStep, 1, model->config.max_positions, kernels::kPageTokens);
  batch.Assign({&sequence, 1}, {}, executable.row_order());
  std::vector<std::vector<float>> buffers(model->graph.buffers.size());  // before the op
  int projections = 0;
  const auto check_op = [&](const LinearOp& op, const StepRun& run) {
    if (op.routes) return;
    ++projections;
    const int64_t k = model->graph.buffers[op.in].width, n = model->graph.buffers[op.out].width;
    for (int64_t r = 0; r < kRowsOfStep * model->graph.buffers[op.in].rows; ++r) {
      const std::span<const float> x = {run.buffer(op.in) + r * k, static_cast<size_t>(k)};
      const int64_t matrix = MatrixOf(*model, op, run, r);
      for (int64_t c = 0; c < n; ++c) {
        float expected = product(op, matrix, c, x);
        if (op.bias.present()) expected = expected + Bias(*model, op, matrix, c);
        if (op.accumulate) expected = buffers[op.out][r * n + c] + expected;
        ASSERT_EQ(std::bit_cast<uint32_t>(run.buffer(op.out)[r * n + c]),
                  std::bit_cast<uint32_t>(expected))
            << op.weight.name << ", row " << r << ", column " << c;
      }
    }
  };
  const auto check = [&](size_t index, const StepRun& run) {
    if (const auto* op = std::get_if<LinearOp>(&model->graph.ops[index])) check_op(*op, run);
    for (size_t b = 0; b < buffers.size(); ++b) {
      const float* const from = run.buffer(static_cast<BufferId>(b));
      const GraphBuffer& buffer = model->graph.buffers[b];
      buffers[b].assign(from, from + kRowsOfStep * buffer.rows * buffer.width);
    }
  };
  EXPECT_TRUE(executable.Trace(**plan, runner.slot(), batch, check).ok());
  return projections;
}

}  // namespace sluice::testing
