// The models that an engine serves, and withdrawn models that still finish accepted requests.
//
// Concurrency contract
//   * Thread-safe. Only the table's own thread ever waits for a request.
//   * Callers use a model through a lease, so that it can be withdrawn at any time: it lives while
//     a lease of it exists. Leases are held for one call and never stored.
//   * Exchange is one step: a look-up sees all of it or nothing.
//   * A withdrawn model is no longer found by name or snapshot, but still by a request's id. The
//     table's thread waits until all earlier leases are returned and the model's requests have
//     ended, and then destroys it. So no request is refused because its model was replaced after
//     the request looked it up.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/work_queue.h"
#include "engine/runner/models/served_model.h"

namespace sluice {

class ModelTable {
 public:
  using Lease = std::shared_ptr<ServedModel>;
  struct Addition {
    RequestId first_id;
    std::unique_ptr<ServedModel> model;
  };

  // The destructor waits for the requests of withdrawn models. Requires that no lease is held.
  ModelTable() : withdrawn_({}, [this](Entry*& entry) { Destroy(entry); }) {}

  // Returns an id for a model that is about to be added. The ids of its requests are above it.
  RequestId NextFirstId();

  // Adds models, each replacing the model with the same name and version, and withdraws snapshots.
  // After an error nothing is changed: returns NotFound if a snapshot to withdraw is not served,
  // and throws std::bad_alloc if there is no memory.
  absl::Status Exchange(std::vector<Addition> added,
                        const std::vector<std::shared_ptr<const Model>>& withdrawn);

  // Return nullptr if there is no such model. FindHighest returns the highest version of a name.
  Lease Find(std::string_view name, int64_t version) const;
  Lease FindHighest(std::string_view name) const;
  Lease FindSnapshot(const Model* model) const;
  Lease FindRequest(RequestId id) const;

  std::vector<Lease> Served() const;
  std::vector<Lease> All() const;  // served models, and withdrawn models that have not ended

 private:
  // Tracks whether a lease and all its copies are gone.
  class Loan {
   public:
    void Return();
    void AwaitReturn();

   private:
    Mutex mu_;
    CondVar changed_;
    bool returned_ ABSL_GUARDED_BY(mu_) = false;
  };
  struct Lent {
    std::shared_ptr<Loan> loan;
    Lease lease;  // callers get copies
  };
  struct Entry {
    RequestId first_id;
    std::unique_ptr<ServedModel> model;
    Lent lent;
    Lent next;  // replaces `lent` on withdrawal, which must not allocate
    bool withdrawn = false;
  };

  static Lent Lend(ServedModel* model);
  template <typename Match>
  Lease Where(const Match& match) const;
  absl::Status CheckServed(const std::vector<std::shared_ptr<const Model>>& models) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Withdraw(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until a withdrawn model's requests have ended, and destroys it.
  void Destroy(Entry* entry);
  void AwaitEnd(Entry* entry);
  std::unique_ptr<Entry> Remove(Entry* entry);

  mutable Mutex mu_;
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 0;

  WorkQueue<Entry*> withdrawn_;  // last: its thread starts when everything else is built
};

}  // namespace sluice
