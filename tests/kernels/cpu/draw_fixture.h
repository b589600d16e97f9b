// Draws from rows of logits on the CPU.
#pragma once

#include "kernels/cpu/sample.h"
#include "tests/kernels/common/draw_bodies.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {

class DrawTest : public OpTest {
 protected:
  // Draws a token and expects the logits to be restored. `edits` may be nullptr.
  static DrawResult DrawRow(const std::vector<float>& logits, const SampleParams& params,
                            const LogitEdits* edits = nullptr, int32_t num_top = 0) {
    std::vector<float> x = logits;
    const auto n = static_cast<int64_t>(x.size());
    std::vector<uint64_t> scratch(SampleScratch(n), ~uint64_t{0});
    DrawResult out = {0, 0, std::vector<int32_t>(num_top, kUnwrittenId),
                      std::vector<float>(num_top, kPoison)};
    const SampleResult result = Sample(
        GetParam(), params,
        {x.data(), n, num_top, out.top_ids.data(), out.top_logprobs.data(), edits}, scratch.data());
    EXPECT_TRUE(SameBits(x, logits)) << "the row changed";
    out.token = result.token;
    out.logprob = result.logprob;
    return out;
  }

  static std::vector<DrawResult> DrawEach(const std::vector<DrawCase>& cases) {
    std::vector<DrawResult> results;
    for (const DrawCase& c : cases) {
      const LogitEdits edits = c.edits.view();
      results.push_back(DrawRow(c.logits, c.params, c.edited ? &edits : nullptr, c.num_top));
    }
    return results;
  }
};

}  // namespace sluice::kernels
