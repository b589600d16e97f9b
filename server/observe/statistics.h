// The counts and durations for the method ModelStatistics: a trace observer.
#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/observer.h"
#include "proto/inference.pb.h"
#include "server/common/per_model.h"

namespace sluice {

// Thread-safe.
class Statistics final : public Observer {
 public:
  // Returns the counts for the model of `stats`, and its memory. All counts are zero for a model
  // without events.
  inference::ModelStatistics Describe(const ModelStats& stats);

  // Drops models in the same way as PerModel::Retire.
  void Retire(IsServed is_served, MonoTime now, nanoseconds keep) {
    models_.Retire(is_served, now, keep);
  }

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override;

 private:
  struct Total {
    uint64_t count = 0;
    nanoseconds time{0};

    void Add(nanoseconds duration);
    void Write(inference::StatisticDuration* out) const;
  };
  struct OfBatchSize {
    Total input, infer, output;
  };
  struct OfModel {
    Mutex mu;
    uint64_t last_inference_ms ABSL_GUARDED_BY(mu) = 0;
    uint64_t rows ABSL_GUARDED_BY(mu) = 0;
    uint64_t batches ABSL_GUARDED_BY(mu) = 0;
    Total success ABSL_GUARDED_BY(mu), fail ABSL_GUARDED_BY(mu), queue ABSL_GUARDED_BY(mu),
        input ABSL_GUARDED_BY(mu), infer ABSL_GUARDED_BY(mu), output ABSL_GUARDED_BY(mu);
    std::map<int32_t, OfBatchSize> by_batch_size ABSL_GUARDED_BY(mu);
  };

  std::shared_ptr<OfModel> For(const Model& model);

  PerModel<OfModel> models_;
};

}  // namespace sluice
