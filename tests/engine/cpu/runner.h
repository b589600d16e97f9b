// Runs whole sequences through the CPU backend and collects all that a replay can answer.
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

// Names of the profiles that this machine can execute.
std::vector<std::string> SupportedProfiles();

// `name` as GoogleTest allows it.
std::string TestName(std::string name);

std::vector<int32_t> RandomTokens(std::mt19937_64& random, int64_t length, int64_t vocab);

// What came back for one sequence.
struct Answer {
  std::vector<float> logits;                      // [length, vocab]
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
  // What greedy decoding appends to `prompt`, each step from position 0.
  std::vector<int32_t> Generate(std::vector<int32_t> prompt, int steps);

  const ExecutableModel& executable() const { return *executable_; }
  Slot& slot() { return *slot_; }

 private:
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Slot> slot_;
  Bucket largest_;
  std::mt19937_64 random_{99};
};

}  // namespace sluice::testing
