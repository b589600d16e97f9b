// The inference service. unary_infer and stream_session handle inference. The other methods answer
// at once or, if they access the disk, on a separate thread.
#pragma once

#include "absl/status/status.h"
#include "server/calls/answer.h"
#include "server/inference/frontend.h"
#include "server/inference/serving_context.h"

namespace sluice {

// One side of the daemon, such as the public address or the admin address.
struct Plane {
  const Callers* callers = nullptr;  // outlives the services; nullptr if every call is served
  TransferWatch* transfers;          // outlive the services
  TransferWatch* idle_streams;
  bool manages_models = false;  // whether models may be loaded and unloaded here
};

// Thread-safe; no method blocks. Owns nothing: `context` and `frontend` outlive the service.
class InferenceService final : public AnsweringService {
 public:
  InferenceService(ServingContext& context, InferenceFrontend& frontend, const Plane& plane);

 private:
  void AddServerMethods();
  void AddModelMethods();
  void AddRepositoryMethods();
  absl::Status MayManage() const;

  ServingContext& context_;
  InferenceFrontend& frontend_;
  const Plane plane_;
};

}  // namespace sluice
