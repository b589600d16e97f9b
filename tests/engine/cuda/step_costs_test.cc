// The costs of a step at the device interface: waits of the host, launches, runs of graphs, copies,
// allocations.
#include <gtest/gtest.h>

#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/kv_cache.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::simt {

void PrintTo(const SimtCounts& counts, std::ostream* out) {
  *out << "waits " << counts.waits << ", launches " << counts.launches << ", runs " << counts.runs
       << " of " << counts.nodes << " nodes, copies " << counts.copies_to_device << " in, "
       << counts.copies_to_host << " out, " << counts.copies_on_device << " on the device, fills "
       << counts.fills << ", allocations " << counts.allocations << " and "
       << counts.pinned_allocations << " pinned, captures " << counts.captures << ", refused "
       << counts.refused << ", left " << counts.device_bytes << " and " << counts.pinned_bytes
       << " pinned bytes, " << counts.streams << " streams, " << counts.events << " events, "
       << counts.graphs << " graphs";
}

}  // namespace sluice::simt

namespace sluice::testing {
namespace {

using simt::SimtCounts;

constexpr Bucket kCostBucket{320, 8};
constexpr int32_t kPagesOfASequence = 20;

enum class Wanted { kDraws, kScores, kMeans };

struct StepCase {
  std::string name;
  int32_t sequences;
  int32_t first, count;  // positions of each sequence
  Wanted wanted;         // a draw of the last row, a score of every row, or the mean of the states
  int32_t num_top = 0;
  bool eager = false;
  // The exact costs: a change that lowers one lowers its row. A cost that is not named is 0:
  // nothing is allocated, captured or filled.
  SimtCounts costs;
  int64_t most_bytes_to_device, most_bytes_to_host;
};
void PrintTo(const StepCase& of, std::ostream* out) { *out << of.name; }

// The kernels of a bucket of the model, which has two layers; of a run of the head; and of a run
// that scores given tokens.
constexpr int64_t kModelNodes = 20, kHeadNodes = 4, kScoreNodes = 3;

const StepCase kStepCases[] = {
    {.name = "Decode",
     .sequences = 1,
     .first = 20,
     .count = 1,
     .wanted = Wanted::kDraws,
     .costs = {.waits = 1,
               .runs = 2,
               .nodes = kModelNodes + kHeadNodes,
               .copies_to_device = 2,
               .copies_to_host = 1},
     .most_bytes_to_device = 1 << 13,
     .most_bytes_to_host = 1 << 8},
    {.name = "DecodeOfEight",
     .sequences = 8,
     .first = 20,
     .count = 1,
     .wanted = Wanted::kDraws,
     .costs = {.waits = 1,
               .runs = 2,
               .nodes = kModelNodes + kHeadNodes,
               .copies_to_device = 2,
               .copies_to_host = 1},
     .most_bytes_to_device = 1 << 13,
     .most_bytes_to_host = 1 << 8},
    {.name = "DecodeOfEightWithCandidates",
     .sequences = 8,
     .first = 20,
     .count = 1,
     .wanted = Wanted::kDraws,
     .num_top = 5,
     .costs = {.waits = 1,
               .runs = 2,
               .nodes = kModelNodes + kHeadNodes,
               .copies_to_device = 2,
               .copies_to_host = 3},
     .most_bytes_to_device = 1 << 13,
     .most_bytes_to_host = 1 << 13},
    {.name = "DecodeWithoutAGraph",
     .sequences = 1,
     .first = 20,
     .count = 1,
     .wanted = Wanted::kDraws,
     .eager = true,
     .costs = {.waits = 1,
               .launches = kModelNodes,
               .runs = 1,
               .nodes = kHeadNodes,
               .copies_to_device = 2,
               .copies_to_host = 1},
     .most_bytes_to_device = 1 << 13,
     .most_bytes_to_host = 1 << 8},
    {.name = "Scoring",
     .sequences = 1,
     .first = 0,
     .count = 40,
     .wanted = Wanted::kScores,
     .costs = {.waits = 1,
               .runs = 2,
               .nodes = kModelNodes + kScoreNodes,
               .copies_to_device = 2,
               .copies_to_host = 1},
     .most_bytes_to_device = 1 << 15,
     .most_bytes_to_host = 1 << 10},
    {.name = "ScoringOfMoreRowsThanARunOfTheHeadTakes",
     .sequences = 5,
     .first = 0,
     .count = 60,
     .wanted = Wanted::kScores,
     .costs = {.waits = 1,
               .runs = 3,
               .nodes = kModelNodes + 2 * kScoreNodes,
               .copies_to_device = 3,
               .copies_to_host = 2},
     .most_bytes_to_device = 1 << 16,
     .most_bytes_to_host = 1 << 12},
    // The bytes copied back equal the size of two sequences' sums.
    {.name = "Means",
     .sequences = 2,
     .first = 0,
     .count = 20,
     .wanted = Wanted::kMeans,
     .costs = {.waits = 1,
               .launches = 1,
               .runs = 1,
               .nodes = kModelNodes,
               .copies_to_device = 2,
               .copies_to_host = 1},
     .most_bytes_to_device = 1 << 13,
     .most_bytes_to_host = 2 * 32 * 8},
};

// A model whose steps use memory of the test.
class StepCosts : public ::testing::TestWithParam<StepCase> {
 protected:
  // Starts a step of all sequences of the case, from position `first` on.
  struct Step {
    explicit Step(const StepCase& of, int32_t first, int32_t count, const ModelConfig& config)
        : batch(kCostBucket.tokens, kCostBucket.sequences,
                static_cast<int32_t>(config.max_positions), kernels::cuda::kPageTokens) {
      const int32_t rows = of.sequences * count;
      tokens.assign(rows, 3);
      pages.resize(kPagesOfASequence * of.sequences);
      std::iota(pages.begin(), pages.end(), 0);
      results.resize(rows);
      top_ids.resize(rows * of.num_top);
      top_logprobs.resize(rows * of.num_top);
      outputs.resize(rows * config.hidden_size);
      for (int32_t s = 0; s < of.sequences; ++s) {
        sequences.push_back({.first_position = first,
                             .count = count,
                             .tokens = tokens.data(),
                             .pages = pages.data() + s * kPagesOfASequence});
        for (int32_t i = 0; i < count; ++i) {
          const int32_t row = s * count + i;
          if (of.wanted == Wanted::kMeans) {
            if (i > 0) continue;
            double* const out = outputs.data() + s * config.hidden_size;
            states.push_back({.sequence = s, .position = first, .out = out, .count = count});
          } else if (of.wanted == Wanted::kScores || i == count - 1) {
            sampled.push_back({.sequence = s,
                               .position = first + i,
                               .target = of.wanted == Wanted::kScores ? 5 : -1,
                               .params = {.temperature = 1, .top_k = 10},
                               .num_top = of.num_top,
                               .top_ids = top_ids.data() + row * of.num_top,
                               .top_logprobs = top_logprobs.data() + row * of.num_top,
                               .result = &results[row]});
          }
        }
      }
      batch.Assign(sequences, sampled, RowOrder::kSequenceMajor, states);
    }

    std::vector<int32_t> tokens, pages, top_ids;
    std::vector<float> top_logprobs;
    std::vector<double> outputs;
    std::vector<kernels::SampleResult> results;
    std::vector<StepSequence> sequences;
    std::vector<SampledRow> sampled;
    std::vector<StateSum> states;
    StepBatch batch;
  };

  void SetUp() override {
    auto device = simt::MakeSimtDevice();
    device_ = device.get();
    backend_ = MakeCudaBackend(std::move(device), {.dtype = "f32"}).value();
    executable_ = backend_->Load(model_).value();
    ASSERT_EQ(executable_->row_order(), RowOrder::kSequenceMajor);
    slot_ = executable_->CreateSlot(kCostBucket, kPagesOfASequence * kCostBucket.sequences).value();
  }
  std::unique_ptr<Plan> PlanFor(int32_t tokens) const {
    const Bucket bucket{tokens, kCostBucket.sequences};
    return (GetParam().eager ? executable_->Eager(bucket) : executable_->Prepare(bucket)).value();
  }
  // Expects the costs of the case times `times`.
  void ExpectCosts(SimtCounts costs, int64_t times) const {
    SimtCounts expected = GetParam().costs;
    for (int64_t SimtCounts::*count :
         {&SimtCounts::waits, &SimtCounts::launches, &SimtCounts::runs, &SimtCounts::nodes,
          &SimtCounts::copies_to_device, &SimtCounts::copies_to_host}) {
      expected.*count *= times;
    }
    expected.copies_on_device = times - 1;  // the inputs that were sent ahead
    EXPECT_LE(costs.bytes_to_device, GetParam().most_bytes_to_device * times);
    EXPECT_LE(costs.bytes_to_host, GetParam().most_bytes_to_host * times);
    costs.bytes_to_device = costs.bytes_to_host = costs.ran = 0;
    EXPECT_EQ(costs, expected);
  }

  const std::shared_ptr<const Model> model_ = [] {
    ModelConfig config = TinyConfig(2);
    config.max_positions = 320;
    return RandomModel(config, 3);
  }();
  std::unique_ptr<Backend> backend_;
  simt::SimtDevice* device_ = nullptr;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Slot> slot_;
};

TEST_P(StepCosts, AreExactForOneStepAndTwoOverlappingSteps) {
  const StepCase& of = GetParam();
  const auto plan = PlanFor(of.sequences * of.count);
  if (of.first > 0) {
    Step prompt(of, 0, of.first, model_->config);
    ASSERT_TRUE(
        executable_->Replay(*executable_->Eager(kCostBucket).value(), *slot_, prompt.batch).ok());
  }
  Step first(of, of.first, of.count, model_->config);
  Step second(of, of.first + (of.first > 0 ? 1 : 0), of.count, model_->config);
  // The first steps that request states allocate the memory for their copies, for each of two
  // overlapping steps.
  for (int i = 0; of.wanted == Wanted::kMeans && i < 2; ++i) {
    ASSERT_TRUE(executable_->Replay(*plan, *slot_, first.batch).ok());
  }
  SimtCounts before = device_->counts();
  ASSERT_TRUE(executable_->Replay(*plan, *slot_, first.batch).ok());
  ExpectCosts(device_->counts() - before, 1);

  before = device_->counts();
  executable_->Start(*plan, *slot_, first.batch);
  executable_->Start(*plan, *slot_, second.batch);
  ASSERT_TRUE(executable_->Finish(*slot_).ok());
  ASSERT_TRUE(executable_->Finish(*slot_).ok());
  ExpectCosts(device_->counts() - before, 2);
}

INSTANTIATE_TEST_SUITE_P(Steps, StepCosts, ::testing::ValuesIn(kStepCases),
                         [](const auto& named) { return named.param.name; });

}  // namespace
}  // namespace sluice::testing
