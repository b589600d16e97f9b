// Runs whole sequences through a backend and collects every output of a replay.
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

// These functions depend on the backend that the tests are linked with.
//
// Returns the names of the profiles that this machine can execute, or of those that compute in f32.
std::vector<std::string> SupportedProfiles();
std::vector<std::string> F32Profiles();
// `options.profile` is one of the names above; the backend defines the meaning of `threads`. A
// failure fails a CHECK.
std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options);
// Returns the kernels that the device of the latest backend has launched, or on a CPU the loops of
// threads that this thread has run.
int64_t LaunchesOfBackends();
// The amount of work in the tests, which depends on the speed of the backend.
struct Effort {
  // A model with sums of realistic length, and the length of its longest prompt.
  struct RealSize {
    int64_t head_dim, heads, kv_heads, hidden, intermediate, vocab;
    int32_t length;
  };

  int64_t long_sum;             // sums of this length use all of the backend's ways to cut sums
  std::vector<int32_t> ladder;  // tokens of the buckets, ascending, up to 128
  int random_models;            // the number of tried models
  int greedy_steps;             // steps generated for each golden sequence
  // Whether invariance is tried for every kind of model, or only for kinds with ops of their own.
  bool every_kind;
  // The kinds of quantised models, or models with pages in other types, that invariance is tried
  // for, and whether their heads are quantised.
  std::vector<std::string> quantized;
  bool quantized_head;
  std::vector<int> threads;        // numbers of threads to try
  std::vector<int32_t> sequences;  // tried numbers of sequences in a batch, ascending
  std::vector<RealSize> real_sizes;
  std::vector<std::string> families = {};  // goldens of FamilyGoldens() that are compared
  bool disentangled = false;               // whether the backend has disentangled attention
};
Effort EffortOfTests();

// Returns `name` in a form that GoogleTest accepts.
std::string TestName(std::string name);

std::vector<int32_t> RandomTokens(std::mt19937_64& random, int64_t length, int64_t vocab);

// One sequence. With `inputs` [length, input_width] its rows are vectors, and its tokens only
// determine the length and the scored tokens.
struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<float> inputs = {};
  int32_t position_offset = 0;
  std::vector<int32_t> types = {};         // of the first tokens; the others are of type 0
  const LoadedAdapter* adapter = nullptr;  // of the runner's model
};

// All outputs for one sequence.
struct Answer {
  std::vector<float> logits;                // [length, vocab]; empty without a head
  std::vector<float> states;                // [length, hidden]
  std::vector<double> state_sum;            // of all positions, [hidden]
  std::vector<kernels::SampleResult> next;  // [length]; the last is drawn, the others are scored
  std::vector<float> xsa_cos_sim, xsa_proj_frac;  // [layers, length, heads]
};

// Returns whether all values have the same bits.
bool SameBits(const Answer& a, const Answer& b);

// Runs steps in one slot of its own. A failure fails a CHECK.
class Runner {
 public:
  Runner(std::shared_ptr<const Model> model, const CpuOptions& options, const Bucket& largest);
  Runner(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
         const Bucket& largest);

  // Runs one batch in the smallest bucket that holds it, with pages drawn at random.
  std::vector<Answer> Run(const std::vector<std::vector<int32_t>>& sequences);
  // Runs one batch with a plan for `bucket`. Every row is sampled: the last row of a sequence is
  // drawn with `params`, the others score the token that follows.
  std::vector<Answer> Run(const std::vector<std::vector<int32_t>>& sequences, const Bucket& bucket,
                          const kernels::SampleParams& params = {});
  std::vector<Answer> Run(const std::vector<Prompt>& prompts, const Bucket& bucket,
                          const kernels::SampleParams& params = {});
  // Runs batches in that bucket one after another. Each starts as early as the backend allows.
  std::vector<std::vector<Answer>> RunOverlapping(const std::vector<std::vector<Prompt>>& batches,
                                                  const Bucket& bucket);
  // Returns the tokens that greedy decoding appends to `prompt`, computing each from position 0.
  std::vector<int32_t> Generate(std::vector<int32_t> prompt, int steps);

  const ExecutableModel& executable() const { return *executable_; }
  Slot& slot() { return *slot_; }

 private:
  // A batch with all memory that it refers to.
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

// Computes a prompt in steps that begin at `cuts`, whose last one is its end, and returns the
// logits of all its rows.
std::vector<float> LogitsOfCut(Runner& runner, const ModelConfig& config,
                               const std::vector<int32_t>& tokens,
                               const std::vector<int32_t>& cuts);

}  // namespace sluice::testing
