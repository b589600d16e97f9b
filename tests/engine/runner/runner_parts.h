// The parts of a ModelRunner around a fake backend, without the scheduling thread, so that tests
// can drive them step by step.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "engine/runner/models/warm_up.h"
#include "engine/runner/requests/request_table.h"
#include "engine/runner/requests/runner_state.h"
#include "engine/runner/steps/step_pipeline.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {

struct RunnerParts {
  explicit RunnerParts(const EngineOptions& engine_options = SmallOptions(),
                       const FakeBackend::Options& backend_options = {})
      : options(engine_options),
        backend(backend_options),
        model(FakeModel(FakeConfig())),
        prepared(*WarmUp(model, options, &backend, &clock, &observer)),
        state(AdmissionControl(
                  {.queue = options.queue,
                   .reuses_prefixes = prepared.kv.keeps_pages && prepared.kv.prefix_reuse}),
              /*first_id=*/100, prepared.kv.keeps_pages, options.batch, prepared.kv,
              std::chrono::minutes(1), prepared.ladder, prepared.costs, /*journal=*/nullptr,
              &clock),
        pipeline(model.get(), &prepared, options.watchdog, &clock, &observer, &waits, &state,
                 &heartbeat) {
    heartbeat.Busy();
    backend.ForgetBatches();
  }

  // Admits a request with these rows and reserves its load.
  RequestId Admit(const std::vector<std::vector<int32_t>>& rows, int32_t max_tokens = 1,
                  MonoTime deadline = MonoTime::max()) {
    Request request = RequestOf(model, rows, max_tokens);
    request.deadline = deadline;
    return Admit(std::move(request));
  }
  // If `awaits_adapter`, the request waits until its test calls AdapterReady.
  RequestId Admit(Request request, bool awaits_adapter = false) {
    sink = std::make_shared<RecordingSink>();
    MutexLock lock(&state.mu);
    const Admission admission =
        state.admission.Reserve(ApplicantOf(request), state.scheduler.scheduler(), 0, clock.Now());
    EXPECT_TRUE(admission.refusal.ok()) << admission.refusal;
    if (admission.gives_place) state.requests.QueueNext(clock.Now());
    auto active =
        std::make_unique<ActiveRequest>(std::move(request), sink, clock.Now(), clock.Now());
    active->admission = admission;
    active->awaits_adapter = awaits_adapter;
    for (RequestRow& row : active->rows) row.kv.ids.reserve(64);
    return state.requests.Admit(std::move(active));
  }

  // Makes every step cost a millisecond per token.
  void LearnCosts() {
    MutexLock lock(&state.mu);
    for (int i = 0; i < 200; ++i) {
      const int32_t tokens = 8 + i % 56;
      state.scheduler.Observe({.bucket = {.tokens = 64, .sequences = 4}, .computed_tokens = tokens},
                              tokens * 1e-3);
    }
  }

  // Decides and takes a batch; returns nullptr if there is nothing to run.
  InFlightStep* Decide() {
    MutexLock lock(&state.mu);
    state.requests.FillQueue(clock.Now());
    BatchDecision decision;
    return pipeline.Decide(clock.Now(), &decision);
  }
  bool MayDecide() {
    MutexLock lock(&state.mu);
    return pipeline.MayDecide(clock.Now());
  }

  RequestTable::Requests TakeEnded() {
    RequestTable::Requests taken;
    MutexLock lock(&state.mu);
    state.requests.TakeEnded(&taken);
    return taken;
  }

  const EngineOptions options;
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const std::shared_ptr<const Model> model;
  const PreparedModel prepared;
  RunnerState state;
  RecentWaits waits;
  Heartbeat heartbeat;
  StepPipeline pipeline;
  std::shared_ptr<RecordingSink> sink;  // the latest request's
};

}  // namespace sluice
