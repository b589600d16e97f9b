// The models that an engine serves, and those that only finish what they have accepted.
//
// Concurrency contract
//   * Thread-safe. Nothing here waits for a request but the table's own thread.
//   * A model is lent, so that it can be withdrawn at any time: it lives as long as somebody has a
//     lease of it. Leases are held for one call and never kept.
//   * Exchange is one step: whoever looks a name up sees all of it or nothing.
//   * A withdrawn model is no longer found by name or snapshot, but still by a request's id. The
//     table's thread waits until nobody is left who found it before, then until its requests have
//     ended, and destroys it. So no request is refused because its model was replaced while it was
//     on its way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/runner/served_model.h"

namespace sluice {

class ModelTable {
 public:
  using Lease = std::shared_ptr<ServedModel>;
  // What one model has for itself. Ids of its requests are above first_id; `slot` is a small number
  // that no other model of the table has at the time.
  struct Place {
    RequestId first_id;
    size_t slot;
  };
  struct Addition {
    Place place;
    std::unique_ptr<ServedModel> model;
  };

  ModelTable();
  // Waits for the requests of withdrawn models; nobody holds a lease any more.
  ~ModelTable();

  // For a model that is about to be added; the place is free again when the model is gone, or when
  // Return gives it back.
  Place Reserve();
  void Return(const Place& place);

  // Adds models, each instead of one of its name and version, and withdraws snapshots; NotFound and
  // no change when one of these is not served.
  absl::Status Exchange(std::vector<Addition> added,
                        const std::vector<std::shared_ptr<const Model>>& withdrawn);

  // nullptr where there is none. Of a name, FindHighest gives the highest version.
  Lease Find(std::string_view name, int64_t version) const;
  Lease FindHighest(std::string_view name) const;
  Lease FindSnapshot(const Model* model) const;
  Lease FindRequest(RequestId id) const;

  std::vector<Lease> Served() const;
  std::vector<Lease> All() const;  // with those withdrawn that have not ended

 private:
  // Whether a lease and all its copies are gone.
  class Loan {
   public:
    void Return();
    void AwaitReturn();

   private:
    Mutex mu_;
    CondVar changed_;
    bool returned_ ABSL_GUARDED_BY(mu_) = false;
  };
  struct Entry {
    Place place;
    std::unique_ptr<ServedModel> model;
    Lease lease;  // lent out as copies
    std::shared_ptr<Loan> loan;
    bool withdrawn = false;
  };

  static void Lend(Entry* entry);
  template <typename Match>
  Lease Where(const Match& match) const;
  absl::Status CheckServed(const std::vector<std::shared_ptr<const Model>>& models) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Withdraw(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void AwaitEnd(Entry* entry);
  std::unique_ptr<Entry> Remove(Entry* entry);

  mutable Mutex mu_;
  CondVar withdrawn_changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  std::deque<Entry*> withdrawn_ ABSL_GUARDED_BY(mu_);  // the thread has not begun with them
  std::vector<bool> slots_ ABSL_GUARDED_BY(mu_);       // taken
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
