// Collects a request's results on the engine's thread; answers on the reply thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/reply_thread.h"
#include "server/validate.h"

namespace sluice {

class InferSink : public Sink, public Delivery, public std::enable_shared_from_this<InferSink> {
 public:
  InferSink(ReplySpec spec, ReplyThread* replies) : spec_(std::move(spec)), replies_(replies) {}

  void OnTokens(const GeneratedToken* tokens, int count) final;
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) final;
  void Deliver() final;

 protected:
  // Called once, on the reply thread; `response` is complete when the status is ok.
  virtual void Answer(const absl::Status& status, inference::ModelInferResponse response) = 0;

  const ReplySpec& spec() const { return spec_; }

 private:
  const ReplySpec spec_;
  ReplyThread* const replies_;
  std::vector<GeneratedToken> tokens_;
  absl::Status status_;
  Reply reply_;
};

}  // namespace sluice
