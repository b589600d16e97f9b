#include "tests/support/recording_observer.h"

#include <utility>

namespace sluice {

void RecordingObserver::OnAdmitted(const Request& request) {
  MutexLock lock(&mu_);
  ++admitted_;
}

void RecordingObserver::OnRejected(std::string_view model, Reason reason) {
  MutexLock lock(&mu_);
  ++rejected_[reason];
}

void RecordingObserver::OnRequestDone(const Request& request, const absl::Status& status,
                                      const RequestTrace& trace) {
  MutexLock lock(&mu_);
  ++done_[status.code()];
  preemptions_ += trace.preemptions;
}

int64_t RecordingObserver::preemptions() const {
  MutexLock lock(&mu_);
  return preemptions_;
}

void RecordingObserver::OnBatch(const BatchTrace& trace) {
  MutexLock lock(&mu_);
  batches_.push_back(trace);
}

void RecordingObserver::OnPlan(const PlanTrace& trace) {
  MutexLock lock(&mu_);
  plans_.push_back(trace);
}

void RecordingObserver::OnReview(const Model& model, const ReviewReport& report) {
  MutexLock lock(&mu_);
  reviews_.push_back(report);
  reviewed_.SignalAll();
}

void RecordingObserver::OnNotice(const Model& model, std::string_view notice) {
  MutexLock lock(&mu_);
  notices_.emplace_back(notice);
}

void RecordingObserver::OnWriteFailed(WrittenFile file) {
  MutexLock lock(&mu_);
  ++failed_writes_[file];
}

void RecordingObserver::OnJournalLinesLost(int64_t lines) {
  MutexLock lock(&mu_);
  lost_lines_ += lines;
}

void RecordingObserver::OnNoPlan(const Model& model, Lookup lookup) {
  MutexLock lock(&mu_);
  without_plan_.push_back(lookup);
}

void RecordingObserver::OnStepFailed(const Model& model, const absl::Status& status,
                                     int64_t failed) {
  MutexLock lock(&mu_);
  step_failures_.push_back(failed);
}

void RecordingObserver::OnStepsRecovered(const Model& model) {
  MutexLock lock(&mu_);
  ++recoveries_;
}

void RecordingObserver::OnHang(const Model& model, const Hang& hang) {
  MutexLock lock(&mu_);
  hangs_.push_back(model.name);
}

std::vector<Lookup> RecordingObserver::without_plan() const {
  MutexLock lock(&mu_);
  return without_plan_;
}

std::vector<int64_t> RecordingObserver::step_failures() const {
  MutexLock lock(&mu_);
  return step_failures_;
}

int RecordingObserver::recoveries() const {
  MutexLock lock(&mu_);
  return recoveries_;
}

std::vector<std::string> RecordingObserver::hangs() const {
  MutexLock lock(&mu_);
  return hangs_;
}

int RecordingObserver::admitted() const {
  MutexLock lock(&mu_);
  return admitted_;
}

int RecordingObserver::rejected(Reason reason) const {
  MutexLock lock(&mu_);
  const auto it = rejected_.find(reason);
  return it == rejected_.end() ? 0 : it->second;
}

int RecordingObserver::done(absl::StatusCode code) const {
  MutexLock lock(&mu_);
  const auto it = done_.find(code);
  return it == done_.end() ? 0 : it->second;
}

int RecordingObserver::done() const {
  MutexLock lock(&mu_);
  int total = 0;
  for (const auto& [code, count] : done_) total += count;
  return total;
}

std::vector<BatchTrace> RecordingObserver::batches() const {
  MutexLock lock(&mu_);
  return batches_;
}

std::vector<PlanTrace> RecordingObserver::plans() const {
  MutexLock lock(&mu_);
  return plans_;
}

std::vector<ReviewReport> RecordingObserver::reviews() const {
  MutexLock lock(&mu_);
  return reviews_;
}

int RecordingObserver::failed_writes(WrittenFile file) const {
  MutexLock lock(&mu_);
  const auto found = failed_writes_.find(file);
  return found == failed_writes_.end() ? 0 : found->second;
}

int64_t RecordingObserver::lost_lines() const {
  MutexLock lock(&mu_);
  return lost_lines_;
}

std::vector<std::string> RecordingObserver::notices() const {
  MutexLock lock(&mu_);
  return notices_;
}

void RecordingObserver::AwaitReviews(size_t count) const {
  MutexLock lock(&mu_);
  while (reviews_.size() < count) reviewed_.Wait(&mu_);
}

void RecordingSink::OnTokens(const GeneratedToken* tokens, int count) {
  MutexLock lock(&mu_);
  for (int i = 0; i < count; ++i) {
    GeneratedToken token = tokens[i];
    if (token.top_ids != nullptr) {
      std::vector<int32_t>& ids = top_ids_[token.row];
      ids.insert(ids.end(), token.top_ids, token.top_ids + num_top_);
      std::vector<float>& logprobs = top_logprobs_[token.row];
      logprobs.insert(logprobs.end(), token.top_logprobs, token.top_logprobs + num_top_);
    }
    token.top_ids = nullptr;
    token.top_logprobs = nullptr;
    tokens_.push_back(token);
  }
  done_.SignalAll();
}

void RecordingSink::AwaitTokens(size_t count) const {
  MutexLock lock(&mu_);
  while (done_calls_ == 0 && tokens_.size() < count) done_.Wait(&mu_);
}

void RecordingSink::OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) {
  MutexLock lock(&mu_);
  ++done_calls_;
  status_ = status;
  reply_ = std::move(reply);
  trace_ = trace;
  done_.SignalAll();
}

void RecordingSink::AwaitDone() const {
  MutexLock lock(&mu_);
  while (done_calls_ == 0) done_.Wait(&mu_);
}

int RecordingSink::done_calls() const {
  MutexLock lock(&mu_);
  return done_calls_;
}

absl::Status RecordingSink::status() const {
  MutexLock lock(&mu_);
  return status_;
}

Reply RecordingSink::reply() const {
  MutexLock lock(&mu_);
  return reply_;
}

RequestTrace RecordingSink::trace() const {
  MutexLock lock(&mu_);
  return trace_;
}

std::vector<GeneratedToken> RecordingSink::tokens() const {
  MutexLock lock(&mu_);
  return tokens_;
}

std::vector<int32_t> RecordingSink::row_tokens(int32_t row) const {
  MutexLock lock(&mu_);
  std::vector<int32_t> tokens;
  for (const GeneratedToken& token : tokens_) {
    if (token.row == row) tokens.push_back(token.token);
  }
  return tokens;
}

std::vector<float> RecordingSink::row_logprobs(int32_t row) const {
  MutexLock lock(&mu_);
  std::vector<float> logprobs;
  for (const GeneratedToken& token : tokens_) {
    if (token.row == row) logprobs.push_back(token.logprob);
  }
  return logprobs;
}

std::vector<int32_t> RecordingSink::row_top_ids(int32_t row) const {
  MutexLock lock(&mu_);
  const auto it = top_ids_.find(row);
  return it == top_ids_.end() ? std::vector<int32_t>() : it->second;
}

std::vector<float> RecordingSink::row_top_logprobs(int32_t row) const {
  MutexLock lock(&mu_);
  const auto it = top_logprobs_.find(row);
  return it == top_logprobs_.end() ? std::vector<float>() : it->second;
}

}  // namespace sluice
