// An observer and a sink that record their calls.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/observer.h"
#include "engine/request.h"

namespace sluice {

class RecordingObserver : public Observer {
 public:
  void OnAdmitted(const Request& request) override;
  void OnRejected(std::string_view model, Reason reason) override;
  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override;
  void OnPlan(const PlanTrace& trace) override;
  void OnNoPlan(const Model& model, Lookup lookup) override;
  void OnReview(const Model& model, const ReviewReport& report) override;
  void OnNotice(const Model& model, std::string_view notice) override;
  void OnWriteFailed(WrittenFile file) override;
  void OnJournalLinesLost(int64_t lines) override;
  void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) override;
  void OnStepsRecovered(const Model& model) override;
  void OnHang(const Model& model, const Hang& hang) override;

  int admitted() const;
  int rejected(Reason reason) const;
  int done(absl::StatusCode code) const;
  int done() const;
  int64_t preemptions() const;  // of all finished requests
  std::vector<BatchTrace> batches() const;
  std::vector<PlanTrace> plans() const;
  std::vector<Lookup> without_plan() const;
  std::vector<ReviewReport> reviews() const;
  std::vector<std::string> notices() const;
  int failed_writes(WrittenFile file) const;
  int64_t lost_lines() const;
  std::vector<int64_t> step_failures() const;  // one entry per call of OnStepFailed
  int recoveries() const;
  std::vector<std::string> hangs() const;  // names of models
  // Blocks until `count` reviews have ended.
  void AwaitReviews(size_t count) const;

 private:
  mutable Mutex mu_;
  int admitted_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<Reason, int> rejected_ ABSL_GUARDED_BY(mu_);
  std::map<absl::StatusCode, int> done_ ABSL_GUARDED_BY(mu_);
  int64_t preemptions_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<BatchTrace> batches_ ABSL_GUARDED_BY(mu_);
  std::vector<PlanTrace> plans_ ABSL_GUARDED_BY(mu_);
  std::vector<Lookup> without_plan_ ABSL_GUARDED_BY(mu_);
  std::vector<ReviewReport> reviews_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> notices_ ABSL_GUARDED_BY(mu_);
  std::map<WrittenFile, int> failed_writes_ ABSL_GUARDED_BY(mu_);
  int64_t lost_lines_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int64_t> step_failures_ ABSL_GUARDED_BY(mu_);
  int recoveries_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> hangs_ ABSL_GUARDED_BY(mu_);
  mutable CondVar reviewed_;
};

class RecordingSink : public Sink {
 public:
  // `num_top` is the number of candidates per token of its requests.
  explicit RecordingSink(int32_t num_top = 0) : num_top_(num_top) {}

  void OnTokens(const GeneratedToken* tokens, int count) override;
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override;

  // Blocks until OnDone was called.
  void AwaitDone() const;

  int done_calls() const;
  // These return the arguments of the last OnDone.
  absl::Status status() const;
  Reply reply() const;
  RequestTrace trace() const;
  std::vector<GeneratedToken> tokens() const;  // without candidates
  // Returns the tokens of one row, in order of arrival.
  std::vector<int32_t> row_tokens(int32_t row) const;
  // Return the same for log-probabilities, [tokens], and for candidates, [tokens, num_top].
  std::vector<float> row_logprobs(int32_t row) const;
  std::vector<int32_t> row_top_ids(int32_t row) const;
  std::vector<float> row_top_logprobs(int32_t row) const;
  // Blocks until `count` tokens have arrived or the request has ended.
  void AwaitTokens(size_t count) const;

 private:
  const int32_t num_top_;
  mutable Mutex mu_;
  mutable CondVar done_;
  int done_calls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  Reply reply_ ABSL_GUARDED_BY(mu_);
  RequestTrace trace_ ABSL_GUARDED_BY(mu_);
  std::vector<GeneratedToken> tokens_ ABSL_GUARDED_BY(mu_);
  std::map<int32_t, std::vector<int32_t>> top_ids_ ABSL_GUARDED_BY(mu_);  // by row
  std::map<int32_t, std::vector<float>> top_logprobs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
