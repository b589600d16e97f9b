// Checks that drafted tokens change no bit of an answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/request.h"

namespace sluice {

// A clock on which only steps take time, see EditingBackend. No wait ends by time.
class StepClock final : public Clock {
 public:
  MonoTime Now() const override { return MonoTime(std::chrono::microseconds(us_.load())); }
  void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline) override {
    if (Now() < deadline) cv->Wait(mu);
  }
  void Advance(std::chrono::microseconds by) { us_ += by.count(); }

 private:
  std::atomic<int64_t> us_ = int64_t{3'600'000'000};
};

// Edits the draws of the models with these names. On its clock, their steps take no time, and a
// step of another model takes a millisecond, whatever it computes. Drafted tokens therefore cost
// nothing, and the scheduler uses all that may be right.
class EditingBackend final : public Backend {
 public:
  using Edit = std::function<int32_t(int32_t token)>;
  EditingBackend(std::unique_ptr<Backend> backend, std::map<std::string, Edit> edits)
      : backend_(std::move(backend)), edits_(std::move(edits)) {}

  const BackendInfo& info() const override { return backend_->info(); }
  int64_t FreeMemory() const override { return backend_->FreeMemory(); }
  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override;

  StepClock* clock() { return &clock_; }
  // Returns the number of steps that were started while another step was in progress.
  int64_t started_ahead() const { return started_ahead_; }

 private:
  const std::unique_ptr<Backend> backend_;
  const std::map<std::string, Edit> edits_;
  StepClock clock_;
  std::atomic<int64_t> started_ahead_ = 0;
};

// The rules by which a token is drawn.
enum class Draws { kGreedy, kSampled, kPenalised, kMasked };

// Returns a request for at most `answer` tokens. Its prompt repeats itself, so that n-grams are
// found.
Request RepeatingText(const std::shared_ptr<const Model>& model, Draws draws, int32_t answer,
                      std::mt19937_64& random);

struct DraftTrial {
  std::string name;  // for the report
  // Returns a model with this name and a tokenizer of bytes. If `similar`, it often draws another
  // token than the other models, which are equal.
  std::function<std::shared_ptr<Model>(const std::string& name, bool similar)> make;
  int32_t texts = 20;         // of each cell
  int32_t answer = 32;        // the most tokens of an answer
  int32_t tokens = 8;         // the most drafted tokens of a row in a step
  int32_t batch_tokens = 64;  // the most tokens of a step
  // If false, tries n-grams with each kind of draws, and each draft model with one, which the seed
  // decides.
  bool every_cell = true;
};

// Answers random texts, several at a time, with and without drafts. A cell is a source of drafts
// and a kind of draws. Each prints its drafted, accepted and rejected tokens, and fails without all
// three; if not every cell is tried, this applies to their sum. The draft that is always wrong must
// have no accepted token.
void ExpectDraftsChangeNoBit(std::unique_ptr<Backend> device, const DraftTrial& trial);

}  // namespace sluice
