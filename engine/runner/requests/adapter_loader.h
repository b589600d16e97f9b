// The thread that loads adapters for waiting requests.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/runner/requests/adapter_table.h"

namespace sluice {

// Until its destructor, calls `deliver` with the requests that wait for adapters of the table,
// which is not owned. The destructor waits for the end of a load.
class AdapterLoader {
 public:
  AdapterLoader(
      AdapterTable* table,
      std::function<void(RequestId, absl::StatusOr<std::shared_ptr<const ServedAdapter>>)> deliver)
      : table_(table), deliver_(std::move(deliver)), thread_([this] { Run(); }) {}
  ~AdapterLoader() {
    table_->Stop();
    thread_.join();
  }
  AdapterLoader(const AdapterLoader&) = delete;
  AdapterLoader& operator=(const AdapterLoader&) = delete;

 private:
  void Run() {
    uint64_t seen = 0;
    do {
      do {
        seen = table_->changes();
      } while (table_->LoadNext(deliver_) == AdapterTable::Progress::kDone);
    } while (table_->AwaitChange(seen));
  }

  AdapterTable* const table_;
  const std::function<void(RequestId, absl::StatusOr<std::shared_ptr<const ServedAdapter>>)>
      deliver_;
  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
