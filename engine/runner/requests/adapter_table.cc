#include "engine/runner/requests/adapter_table.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/out_of_memory.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// Returns the error of an adapter that was read before and cannot be read again. It is not the
// fault of the request.
absl::Status Unreadable(const std::string& model, const absl::Status& status) {
  const bool files = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return absl::Status(files ? absl::StatusCode::kFailedPrecondition : status.code(),
                      absl::StrCat("model ", model, ": ", status.message(),
                                   files ? ". The adapter was evicted, and its folder has changed "
                                           "since. Correct the folder, or unload the adapter"
                                         : ""));
}

AdapterCounts CountsOf(const AdapterUse& use) {
  return {use.requests, use.tokens, use.loads, use.evictions};
}

}  // namespace

ServedAdapter::ServedAdapter(std::string own_name, uint64_t own_number,
                             std::unique_ptr<const LoadedAdapter> packed,
                             const std::optional<AdapterHead>& own_head)
    : name(std::move(own_name)), number(own_number), weights(std::move(packed)) {
  if (!own_head) return;
  head = own_head->config;
  classifier = own_head->classifier.WithCopies();
}

ServedAdapter::~ServedAdapter() {
  if (table == nullptr) return;
  const int64_t freed = bytes();
  weights.reset();
  classifier.reset();
  table->Free(freed);
}

int64_t ServedAdapter::bytes() const {
  return weights->bytes() + (classifier ? classifier->saved_bytes() : 0);
}

bool ServedAdapter::Matches(const RequestSpec& spec) const {
  if (head == nullptr || spec.head == nullptr) return head == spec.head;
  return *head == *spec.head;
}

void AdapterTable::Changed() {
  ++changes_;
  changed_.SignalAll();
}

void AdapterTable::Free(int64_t bytes) {
  MutexLock lock(&mu_);
  used_ -= bytes;
  leaving_ -= bytes;
  Changed();
}

void AdapterTable::GiveBack(int64_t reserved) {
  MutexLock lock(&mu_);
  used_ -= reserved;
  Changed();
}

absl::StatusOr<int64_t> AdapterTable::BytesOf(const Adapter& adapter) const {
  SLUICE_ASSIGN_OR_RETURN(int64_t bytes, executable_->AdapterBytes(adapter));
  if (adapter.head) bytes += adapter.head->classifier.saved_bytes();
  if (bytes <= limit_) return bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      "adapter ", adapter.name, " takes ", bytes, " bytes; the limit of all adapters ",
      "of the model is ", limit_, ". Raise the model's option adapter_memory_bytes, or ",
      "give the daemon more memory: at most half of the memory that is free after ",
      "the weights is for adapters"));
}

AdapterTable::Entry* AdapterTable::Victim(int64_t bytes, bool evict_used, std::string_view caller) {
  const MonoTime now = clock_->Now();
  const auto owner_of = [&](const Entry& entry) -> std::string_view {
    return now - entry.last_time < kOwned ? std::string_view(entry.owner) : "";
  };
  std::map<std::string_view, int64_t> owned;
  for (const auto& [name, entry] : entries_) {
    if (entry.loaded != nullptr) owned[owner_of(entry)] += entry.loaded->bytes();
  }
  owned[""] = std::numeric_limits<int64_t>::max();  // such adapters are evicted first
  const auto own = owned.find(caller);
  const bool owns = !caller.empty() && own != owned.end();
  if (owns) own->second += bytes;
  Entry* victim = nullptr;
  const auto rank = [&](const Entry& entry) {
    return std::tuple(entry.loaded.use_count() > 1, -owned[owner_of(entry)], entry.last_use);
  };
  for (auto& [name, entry] : entries_) {
    if (entry.loaded == nullptr) continue;
    if (!evict_used && entry.loaded.use_count() > 1) continue;
    const std::string_view owner = owner_of(entry);
    if (owns && owner != caller && owned[owner] <= own->second) continue;
    if (victim == nullptr || rank(entry) < rank(*victim)) victim = &entry;
  }
  return victim;
}

void AdapterTable::Evict(Entry* entry, Evicted* evicted) {
  if (entry->loaded == nullptr) return;
  leaving_ += entry->loaded->bytes();
  evicted->push_back(std::move(entry->loaded));
}

bool AdapterTable::Reserve(int64_t bytes, bool evict, bool evict_used, std::string_view caller) {
  Evicted evicted;
  {
    MutexLock lock(&mu_);
    while (evict && used_ - leaving_ + bytes > limit_) {
      Entry* const victim = Victim(bytes, evict_used, caller);
      if (victim == nullptr) break;
      Evict(victim, &evicted);
      ++victim->use->evictions;
    }
  }
  evicted.clear();  // without the lock: frees the idle ones
  MutexLock lock(&mu_);
  if (used_ + bytes > limit_) return false;
  used_ += bytes;
  return true;
}

absl::StatusOr<std::shared_ptr<ServedAdapter>> AdapterTable::Pack(const Adapter& adapter) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<const LoadedAdapter> weights,
                          executable_->LoadAdapter(adapter));
  return std::make_shared<ServedAdapter>(adapter.name, ++last_number_, std::move(weights),
                                         adapter.head);
}

void AdapterTable::Count(const std::shared_ptr<ServedAdapter>& served, int64_t reserved,
                         Entry* entry) {
  used_ += served->bytes() - reserved;
  served->table = this;
  served->use = entry->use;
  ++entry->use->loads;
  entry->loaded = served;
}

absl::Status AdapterTable::Load(const AdapterSource& source, Room room) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<const Adapter> adapter, source.read());
  SLUICE_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(*adapter));
  std::shared_ptr<ServedAdapter> served;
  const bool reserved =
      Reserve(bytes, /*evict=*/room == Room::kEvictIdle, /*evict_used=*/false, /*caller=*/"");
  absl::Cleanup give_back = [&] {
    if (reserved) GiveBack(bytes);
  };
  if (reserved) {
    SLUICE_ASSIGN_OR_RETURN(served, Pack(*adapter));
  }
  AdapterSource own = source;
  Evicted replaced;  // freed after the lock
  replaced.reserve(1);
  MutexLock lock(&mu_);
  const auto found = entries_.find(source.name);
  if (found == entries_.end() && entries_.size() >= kMaxAdapters) {
    return absl::ResourceExhaustedError(absl::StrCat("model ", model_, " has ", entries_.size(),
                                                     " adapters, which is the limit; ",
                                                     "unload one first"));
  }
  Entry& entry = entries_[source.name];
  std::move(give_back).Cancel();
  Evict(&entry, &replaced);
  entry.source = std::move(own);
  entry.version = ++last_version_;
  entry.most_bytes = bytes;
  entry.head = adapter->head ? adapter->head->config : nullptr;
  entry.last_use = ++last_use_;
  if (served != nullptr) Count(served, bytes, &entry);
  Changed();
  return absl::OkStatus();
}

absl::Status AdapterTable::Unload(std::string_view name) {
  Evicted unloaded;  // freed after the lock
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFound(name);
  const std::vector<RequestId> waiting = std::move(found->second.waiting);
  Evict(&found->second, &unloaded);
  forgotten_ += CountsOf(*found->second.use) - found->second.before_named;
  if (found->second.named) --named_;
  entries_.erase(found);
  std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.name == name; });
  for (const RequestId id : waiting) failed_.emplace_back(id, NotFound(name));
  Changed();
  return absl::OkStatus();
}

std::vector<std::string> AdapterTable::Names() const {
  MutexLock lock(&mu_);
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

absl::StatusOr<std::shared_ptr<const ClassifierConfig>> AdapterTable::HeadOf(
    std::string_view name) const {
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFound(name);
  return found->second.head;
}

int64_t AdapterTable::bytes() const {
  MutexLock lock(&mu_);
  return used_;
}

absl::StatusOr<std::shared_ptr<const ServedAdapter>> AdapterTable::Use(std::string_view name,
                                                                       std::string_view caller) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFound(name);
  Entry& entry = found->second;
  entry.owner = caller;
  entry.last_use = ++last_use_;
  entry.last_time = clock_->Now();
  if (!entry.named && named_ < AdapterTableStats::kMaxNamed) {
    entry.named = true;
    ++named_;
    entry.before_named = CountsOf(*entry.use);
    forgotten_ += entry.before_named;  // the counts of the others never decrease
  }
  return entry.loaded;
}

void AdapterTable::Await(std::string_view name, std::string_view caller, RequestId id) noexcept {
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    failed_.emplace_back(id, NotFound(name));
  } else {
    if (found->second.waiting.empty()) {
      std::erase_if(rounds_, [&](const auto& each) { return each.second < round_; });
      const auto last = rounds_.find(caller);
      const uint64_t round = last == rounds_.end() ? round_ : last->second + 1;
      rounds_.insert_or_assign(std::string(caller), round);
      const auto place = std::ranges::upper_bound(wanted_, round, {}, &Wanted::round);
      wanted_.insert(place, {std::string(name), std::string(caller), round});
    }
    found->second.waiting.push_back(id);
  }
  Changed();
}

absl::Status AdapterTable::LoadReserved(const AdapterSource& source, uint64_t version,
                                        int64_t reserved) {
  absl::Cleanup give_back = [&] { GiveBack(reserved); };
  const absl::StatusOr<std::shared_ptr<const Adapter>> adapter = source.read();
  if (!adapter.ok()) return Unreadable(model_, adapter.status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(**adapter));
  std::shared_ptr<ServedAdapter> served;
  if (bytes <= reserved) {
    SLUICE_ASSIGN_OR_RETURN(served, Pack(**adapter));
  }
  MutexLock lock(&mu_);
  const auto found = entries_.find(source.name);
  const bool same = found != entries_.end() && found->second.version == version;
  if (same) {
    found->second.most_bytes = bytes;
    found->second.head = (*adapter)->head ? (*adapter)->head->config : nullptr;
  }
  if (same && served != nullptr && found->second.loaded == nullptr) {
    Count(served, reserved, &found->second);
  } else {
    used_ -= reserved;
  }
  std::move(give_back).Cancel();
  return absl::OkStatus();
}

AdapterTable::Progress AdapterTable::LoadNext(Delivery deliver) {
  std::vector<std::pair<RequestId, absl::Status>> failed;
  Wanted next;
  AdapterSource source;
  uint64_t version = 0;
  int64_t bytes = 0;
  bool load = false;
  {
    MutexLock lock(&mu_);
    failed.swap(failed_);
    if (stopped_ || (failed.empty() && wanted_.empty())) return Progress::kIdle;
    if (failed.empty()) {
      next = wanted_.front();
      round_ = next.round;
      const Entry& entry = entries_.find(next.name)->second;
      source = entry.source;
      version = entry.version;
      bytes = entry.most_bytes;
      load = entry.loaded == nullptr;
    }
  }
  for (auto& [id, status] : failed) deliver(id, std::move(status));
  if (!failed.empty()) return Progress::kDone;
  absl::Status status;
  if (load) {
    if (!Reserve(bytes, /*evict=*/true, /*evict_used=*/true, next.caller)) {
      return Progress::kNoRoom;
    }
    status = OrOutOfMemory([&] { return LoadReserved(source, version, bytes); });
  }
  std::vector<RequestId> waiting;
  std::shared_ptr<const ServedAdapter> served;
  {
    MutexLock lock(&mu_);
    const auto found = entries_.find(next.name);
    if (found == entries_.end()) return Progress::kDone;
    Entry& entry = found->second;
    served = entry.loaded;
    // An adapter that was replaced in the meantime is loaded again.
    if (served == nullptr && (status.ok() || entry.version != version)) return Progress::kDone;
    waiting.swap(entry.waiting);
    std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.name == next.name; });
  }
  for (const RequestId id : waiting) {
    if (served != nullptr) {
      deliver(id, served);
    } else {
      deliver(id, status);
    }
  }
  return Progress::kDone;
}

AdapterTableStats AdapterTable::Stats() const {
  MutexLock lock(&mu_);
  AdapterTableStats stats = {.bytes = used_, .limit_bytes = limit_};
  stats.known = std::ssize(entries_);
  stats.others.counts = forgotten_;
  int64_t most_bytes = 0;
  std::vector<std::pair<uint64_t, std::string>> loaded;  // by last use
  for (const auto& [name, entry] : entries_) {
    AdapterStats& own = entry.named ? stats.named.emplace_back() : stats.others;
    if (entry.named) own.name = name;
    own.counts += CountsOf(*entry.use) - entry.before_named;
    if (entry.loaded != nullptr) {
      own.bytes += entry.loaded->bytes();
      loaded.emplace_back(entry.last_use, name);
    }
    if (!entry.waiting.empty()) stats.waiting.push_back(name);
    most_bytes += entry.most_bytes;
  }
  if (most_bytes > 0) {
    // Divided in this order, because the product of limit and count may be too large.
    stats.capacity = std::clamp(limit_ / std::max<int64_t>(most_bytes / stats.known, 1),
                                std::ssize(loaded), static_cast<int64_t>(kMaxAdapters));
  }
  std::ranges::sort(loaded, std::greater<>());
  for (auto& [use, name] : loaded) {
    if (std::ssize(stats.loaded) == AdapterTableStats::kMaxListed) break;
    stats.loaded.push_back(std::move(name));
  }
  std::ranges::sort(stats.loaded);  // a use must not change the label of a metric
  stats.waiting.resize(std::min<size_t>(stats.waiting.size(), AdapterTableStats::kMaxListed));
  return stats;
}

uint64_t AdapterTable::changes() const {
  MutexLock lock(&mu_);
  return changes_;
}

bool AdapterTable::AwaitChange(uint64_t seen) const {
  MutexLock lock(&mu_);
  while (!stopped_ && changes_ == seen) changed_.Wait(&mu_);
  return !stopped_;
}

void AdapterTable::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  changed_.SignalAll();
}

absl::Status AdapterTable::NotFound(std::string_view name) const {
  constexpr size_t kNamed = 64;
  std::string names;
  size_t named = 0;
  for (const auto& [each, entry] : entries_) {
    if (named++ == kNamed) break;
    absl::StrAppend(&names, named == 1 ? "; known: " : ", ", each);
  }
  return absl::NotFoundError(absl::StrCat(
      "model ", model_, " has no adapter '",
      absl::CHexEscape(absl::string_view(name.data(), name.size())), "'",
      entries_.empty() ? "; it has none" : names, entries_.size() > kNamed ? ", ..." : ""));
}

}  // namespace sluice
