// An observer that passes all events of the engine to several other observers.
#pragma once

#include <utility>
#include <vector>

#include "engine/observer.h"

namespace sluice {

// The observers are not owned and outlive this object.
class Observers final : public Observer {
 public:
  explicit Observers(std::vector<Observer*> observers) : observers_(std::move(observers)) {}

  void OnAdmitted(const Request& request) override {
    for (Observer* observer : observers_) observer->OnAdmitted(request);
  }
  void OnRejected(std::string_view model, Reason reason) override {
    for (Observer* observer : observers_) observer->OnRejected(model, reason);
  }
  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override {
    for (Observer* observer : observers_) observer->OnRequestDone(request, status, trace);
  }
  void OnBatch(const BatchTrace& trace) override {
    for (Observer* observer : observers_) observer->OnBatch(trace);
  }
  void OnPlan(const PlanTrace& trace) override {
    for (Observer* observer : observers_) observer->OnPlan(trace);
  }
  void OnDiagnostics(const Model& model, const Reply& reply) override {
    for (Observer* observer : observers_) observer->OnDiagnostics(model, reply);
  }
  void OnNoPlan(const Model& model, Lookup lookup) override {
    for (Observer* observer : observers_) observer->OnNoPlan(model, lookup);
  }
  void OnReview(const Model& model, const ReviewReport& report) override {
    for (Observer* observer : observers_) observer->OnReview(model, report);
  }
  void OnKernels(const Model& model, std::string_view kernels) override {
    for (Observer* observer : observers_) observer->OnKernels(model, kernels);
  }
  void OnNotice(const Model& model, std::string_view notice) override {
    for (Observer* observer : observers_) observer->OnNotice(model, notice);
  }
  void OnWriteFailed(WrittenFile file) override {
    for (Observer* observer : observers_) observer->OnWriteFailed(file);
  }
  void OnJournalLinesLost(int64_t lines) override {
    for (Observer* observer : observers_) observer->OnJournalLinesLost(lines);
  }
  void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) override {
    for (Observer* observer : observers_) observer->OnStepFailed(model, status, failed);
  }
  void OnStepsRecovered(const Model& model) override {
    for (Observer* observer : observers_) observer->OnStepsRecovered(model);
  }
  void OnHang(const Model& model, const Hang& hang) override {
    for (Observer* observer : observers_) observer->OnHang(model, hang);
  }

 private:
  const std::vector<Observer*> observers_;
};

}  // namespace sluice
