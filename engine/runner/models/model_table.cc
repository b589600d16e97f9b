#include "engine/runner/models/model_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// The high bits of a request's id are its model's number. This allows about a million loads, with
// years of requests each, before a number is reused.
constexpr int kSerialBits = 44;
constexpr uint64_t kNumbers = uint64_t{1} << (64 - kSerialBits);

uint64_t NumberOf(RequestId id) { return id >> kSerialBits; }

}  // namespace

RequestId ModelTable::NextFirstId() {
  MutexLock lock(&mu_);
  return (next_number_++ % kNumbers) << kSerialBits;
}

ModelTable::Lent ModelTable::Lend(ServedModel* model) {
  // Shared, because the waiting thread may be destroyed before Return returns.
  const auto loan = std::make_shared<Loan>();
  return {loan, Lease(model, [loan](ServedModel*) { loan->Return(); })};
}

void ModelTable::Loan::Return() {
  MutexLock lock(&mu_);
  returned_ = true;
  changed_.Signal();
}

void ModelTable::Loan::AwaitReturn() {
  MutexLock lock(&mu_);
  while (!returned_) changed_.Wait(&mu_);
}

absl::Status ModelTable::Exchange(std::vector<Addition> added,
                                  const std::vector<std::shared_ptr<const Model>>& withdrawn) {
  std::vector<std::unique_ptr<Entry>> next;
  next.reserve(added.size());
  for (Addition& addition : added) {
    auto entry = std::make_unique<Entry>();
    entry->first_id = addition.first_id;
    entry->model = std::move(addition.model);
    entry->lent = Lend(entry->model.get());
    entry->next = Lend(entry->model.get());
    next.push_back(std::move(entry));
  }
  MutexLock lock(&mu_);
  SLUICE_RETURN_IF_ERROR(CheckServed(withdrawn));
  entries_.reserve(entries_.size() + next.size());
  withdrawn_.Reserve(entries_.size());
  // Nothing below allocates memory.
  for (const auto& entry : entries_) {
    const Model& model = *entry->model->model();
    const bool replaced = std::any_of(next.begin(), next.end(), [&](const auto& addition) {
      const Model& other = *addition->model->model();
      return other.name == model.name && other.version == model.version;
    });
    const bool named =
        std::find(withdrawn.begin(), withdrawn.end(), entry->model->model()) != withdrawn.end();
    if (!entry->withdrawn && (replaced || named)) Withdraw(entry.get());
  }
  std::move(next.begin(), next.end(), std::back_inserter(entries_));
  return absl::OkStatus();
}

absl::Status ModelTable::CheckServed(
    const std::vector<std::shared_ptr<const Model>>& models) const {
  for (const std::shared_ptr<const Model>& model : models) {
    const bool served = std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return !entry->withdrawn && entry->model->model() == model;
    });
    if (!served) {
      return absl::NotFoundError(absl::StrCat("this snapshot of version ", model->version,
                                              " of model '", model->name, "' is not served"));
    }
  }
  return absl::OkStatus();
}

void ModelTable::Withdraw(Entry* entry) {
  entry->withdrawn = true;
  withdrawn_.Post(entry);
}

template <typename Match>
ModelTable::Lease ModelTable::Where(const Match& match) const {
  MutexLock lock(&mu_);
  for (const auto& entry : entries_) {
    if (match(*entry)) return entry->lent.lease;
  }
  return nullptr;
}

ModelTable::Lease ModelTable::Find(std::string_view name, int64_t version) const {
  return Where([&](const Entry& entry) {
    const Model& model = *entry.model->model();
    return !entry.withdrawn && model.name == name && model.version == version;
  });
}

ModelTable::Lease ModelTable::FindHighest(std::string_view name) const {
  MutexLock lock(&mu_);
  const Entry* highest = nullptr;
  for (const auto& entry : entries_) {
    const Model& model = *entry->model->model();
    if (entry->withdrawn || model.name != name) continue;
    if (highest == nullptr || model.version > highest->model->model()->version) {
      highest = entry.get();
    }
  }
  return highest == nullptr ? nullptr : highest->lent.lease;
}

ModelTable::Lease ModelTable::FindSnapshot(const Model* model) const {
  return Where([model](const Entry& entry) {
    return !entry.withdrawn && entry.model->model().get() == model;
  });
}

ModelTable::Lease ModelTable::FindRequest(RequestId id) const {
  return Where([id](const Entry& entry) { return NumberOf(entry.first_id) == NumberOf(id); });
}

std::vector<ModelTable::Lease> ModelTable::Served() const {
  MutexLock lock(&mu_);
  std::vector<Lease> leases;
  for (const auto& entry : entries_) {
    if (!entry->withdrawn) leases.push_back(entry->lent.lease);
  }
  return leases;
}

std::vector<ModelTable::Lease> ModelTable::All() const {
  MutexLock lock(&mu_);
  std::vector<Lease> leases;
  leases.reserve(entries_.size());
  for (const auto& entry : entries_) leases.push_back(entry->lent.lease);
  return leases;
}

void ModelTable::Destroy(Entry* entry) {
  AwaitEnd(entry);
  // While it can still be found, so that a load of the same model reads the file afterwards.
  entry->model->HandOverLadder();
  entry->model->HandOverJournal();
  std::unique_ptr<Entry> removed = Remove(entry);
  removed->lent.lease = nullptr;
  removed->lent.loan->AwaitReturn();  // leases from FindRequest or All
}

void ModelTable::AwaitEnd(Entry* entry) {
  std::shared_ptr<Loan> found;
  {
    MutexLock lock(&mu_);
    const Lent former = std::exchange(entry->lent, std::move(entry->next));
    found = former.loan;
  }
  found->AwaitReturn();  // all calls that found it by name have submitted, or will not
  entry->model->runner().StopAdmission();
  entry->model->runner().AwaitIdle(MonoTime::max());
}

std::unique_ptr<ModelTable::Entry> ModelTable::Remove(Entry* entry) {
  MutexLock lock(&mu_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [entry](const auto& each) { return each.get() == entry; });
  std::unique_ptr<Entry> removed = std::move(*at);
  entries_.erase(at);
  return removed;
}

}  // namespace sluice
