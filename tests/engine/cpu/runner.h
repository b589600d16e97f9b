// Runs whole sequences through a backend and collects all that a replay can answer.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/options.h"
#include "engine/step_batch.h"

namespace sluice::testing {

// What differs between the backends that these tests are linked with.
//
// Names of the profiles that this machine can execute; of those, the ones that compute in f32.
std::vector<std::string> SupportedProfiles();
std::vector<std::string> F32Profiles();
// `options.profile` is one of these names; `threads` means what it can. Any failure is a broken
// invariant.
std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options);
// How much the tests ask of it.
struct Effort {
  int64_t long_sum;  // sums over so many values meet every way in which the backend cuts sums
  std::vector<int32_t> ladder;  // tokens of the buckets, ascending, up to 128
  int random_models;            // tried one after another
  int greedy_steps;             // of each golden sequence
  bool every_kind;           // of model is tried for invariance; else those with ops of their own
  std::vector<int> threads;  // numbers that may make a difference
  std::vector<int32_t> sequences;  // numbers in a batch that are tried, ascending
};
Effort EffortOfTests();

// `name` as GoogleTest allows it.
std::string TestName(std::string name);

std::vector<int32_t> RandomTokens(std::mt19937_64& random, int64_t length, int64_t vocab);

// One sequence. With `inputs` [length, input_width] its rows are vectors, and its tokens say no
// more than how many and what is scored.
struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<float> inputs = {};
  int32_t position_offset = 0;
};

// What came back for one sequence.
struct Answer {
  std::vector<float> logits;                      // [length, vocab]; none without a head
  std::vector<float> states;                      // [length, hidden]
  std::vector<kernels::SampleResult> next;        // [length]: scored, the last one drawn
  std::vector<float> xsa_cos_sim, xsa_proj_frac;  // [layers, length, heads]
};

// Bitwise.
bool SameBits(const Answer& a, const Answer& b);

// Keeps one slot. Any failure is a broken invariant.
class Runner {
 public:
  Runner(std::shared_ptr<const Model> model, const CpuOptions& options, const Bucket& largest);

  // One batch in the smallest bucket that holds it, its pages drawn at random.
  std::vector<Answer> Run(const std::vector<std::vector<int32_t>>& sequences);
  // One batch with a plan for `bucket`. Every row is sampled; the last of a sequence with `params`,
  // the others score the token that follows.
  std::vector<Answer> Run(const std::vector<std::vector<int32_t>>& sequences, const Bucket& bucket,
                          const kernels::SampleParams& params = {});
  std::vector<Answer> Run(const std::vector<Prompt>& prompts, const Bucket& bucket,
                          const kernels::SampleParams& params = {});
  // Batches in that bucket, one after another, each started as early as the backend allows.
  std::vector<std::vector<Answer>> RunOverlapping(const std::vector<std::vector<Prompt>>& batches,
                                                  const Bucket& bucket);
  // What greedy decoding appends to `prompt`, each step from position 0.
  std::vector<int32_t> Generate(std::vector<int32_t> prompt, int steps);

  const ExecutableModel& executable() const { return *executable_; }
  Slot& slot() { return *slot_; }

 private:
  // A batch with all that it refers to.
  struct Step;

  std::unique_ptr<Step> Lay(const std::vector<Prompt>& prompts, const Bucket& bucket,
                            const kernels::SampleParams& params);
  void AddSampledRows(const Prompt& prompt, const kernels::SampleParams& params, Step* step) const;
  std::vector<Answer> Collect(Step* step) const;

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Slot> slot_;
  Bucket largest_;
  std::mt19937_64 random_{99};
};

}  // namespace sluice::testing
