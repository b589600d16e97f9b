// Draws loads, unloads, requests and evictions of adapters, and compares the table with a reference
// that keeps plain lists.
#include "engine/runner/requests/adapter_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLimit = 100;
constexpr int64_t kSlack = 3;  // AdapterBytes exceeds the bytes of a packed adapter by this

// The files of the adapters: the size of each, in its rank. A negative size cannot be read.
using Disk = std::map<std::string, int64_t>;

class Sized : public ExecutableModel {
 public:
  struct Weights : LoadedAdapter {
    Weights(int64_t bytes, int64_t* total) : size(bytes), sum(total) { *sum += size; }
    ~Weights() override { *sum -= size; }
    int64_t bytes() const override { return size; }
    const int64_t size;
    int64_t* const sum;
  };

  absl::StatusOr<std::unique_ptr<const LoadedAdapter>> LoadAdapter(
      const Adapter& adapter) const override {
    return std::make_unique<const Weights>(adapter.rank, &live);
  }
  absl::StatusOr<int64_t> AdapterBytes(const Adapter& adapter) const override {
    return adapter.rank + kSlack;
  }

  int64_t weight_bytes() const override { return 0; }
  RowOrder row_order() const override { return RowOrder::kSequenceMajor; }
  int64_t page_bytes() const override { return 0; }
  int64_t activation_bytes(const Bucket&) const override { return 0; }
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket&) const override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket&, int32_t) const override {
    return absl::UnimplementedError("");
  }
  void Start(const Plan&, Slot&, const StepBatch&) const override {}
  absl::Status Finish(Slot&) const override { return absl::OkStatus(); }

  mutable int64_t live = 0;  // bytes of packed adapters that exist
};

AdapterSource On(Disk* disk, const std::string& name) {
  return {name, [=]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
            const int64_t size = disk->at(name);
            if (size < 0) return absl::InvalidArgumentError("adapter " + name + ": broken");
            auto adapter = std::make_shared<Adapter>();
            adapter->name = name;
            adapter->rank = size;
            return adapter;
          }};
}

// What a request got: an adapter of this size, or an error.
struct Got {
  RequestId id;
  int64_t size;  // 0 for an error
  absl::StatusCode code;
  bool operator==(const Got&) const = default;
};
void PrintTo(const Got& got, std::ostream* out) {
  *out << got.id << ":" << got.size << ":" << absl::StatusCodeToString(got.code);
}

class Reference {
 public:
  Reference(const Disk* disk, const FakeClock* clock) : disk_(disk), clock_(clock) {}

  struct Loaded {
    int64_t size;
    int users = 0;
    bool served = true;  // in the table
  };
  struct Known {
    std::string name;
    int64_t most;
    std::optional<size_t> loaded;  // index into loaded_
    std::string owner;
    uint64_t used = 0;
    MonoTime time{};
    uint64_t version = 0;
    std::vector<RequestId> waiting;
  };

  Known* Find(const std::string& name) {
    const auto found = std::ranges::find(known_, name, &Known::name);
    return found == known_.end() ? nullptr : &*found;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Known& known : known_) names.push_back(known.name);
    std::ranges::sort(names);
    return names;
  }
  int64_t Bytes() const {
    int64_t bytes = 0;
    for (const Loaded& each : loaded_) {
      if (each.served || each.users > 0) bytes += each.size;
    }
    return bytes;
  }

  bool Load(const std::string& name, bool evict) {
    const int64_t size = disk_->at(name);
    if (size < 0 || size + kSlack > kLimit) return false;
    const bool room = MakeRoom(size + kSlack, evict, /*used=*/false, "");
    Known* known = Find(name);
    if (known == nullptr) {
      known_.push_back({.name = name, .most = 0, .loaded = {}, .owner = "", .waiting = {}});
      known = &known_.back();
    }
    Drop(known);
    known->most = size + kSlack;
    known->used = ++uses_;
    ++known->version;
    if (room) Put(known, size);
    return true;
  }
  bool Unload(const std::string& name) {
    Known* const known = Find(name);
    if (known == nullptr) return false;
    Drop(known);
    for (const RequestId id : known->waiting) failed_.push_back(id);
    std::erase(wanted_, name);
    known_.erase(known_.begin() + (known - known_.data()));
    return true;
  }
  // Returns nullopt if the adapter is unknown, and 0 if it must be awaited.
  std::optional<int64_t> Use(const std::string& name, const std::string& caller, RequestId id) {
    Known* const known = Find(name);
    if (known == nullptr) return std::nullopt;
    known->owner = caller;
    known->used = ++uses_;
    known->time = clock_->Now();
    if (!known->loaded) return 0;
    Take(id, *known->loaded);
    return loaded_[*known->loaded].size;
  }
  void Await(const std::string& name, const std::string& caller, RequestId id) {
    Known* const known = Find(name);
    if (known->waiting.empty()) {
      callers_[name] = caller;
      const bool passed = !rounds_.contains(caller) || rounds_[caller] < round_;
      rounds_[caller] = passed ? round_ : rounds_[caller] + 1;
      round_of_[name] = rounds_[caller];
      wanted_.push_back(name);
      std::ranges::stable_sort(wanted_, {}, [&](const auto& each) { return round_of_[each]; });
    }
    known->waiting.push_back(id);
  }
  void End(RequestId id) {
    --loaded_[users_.at(id)].users;
    users_.erase(id);
  }
  AdapterTable::Progress LoadNext(std::vector<Got>* got) {
    for (const RequestId id : failed_) got->push_back({id, 0, absl::StatusCode::kNotFound});
    if (!failed_.empty()) {
      failed_.clear();
      return AdapterTable::Progress::kDone;
    }
    if (wanted_.empty()) return AdapterTable::Progress::kIdle;
    Known* const known = Find(wanted_.front());
    round_ = round_of_[wanted_.front()];
    absl::StatusCode error = absl::StatusCode::kOk;
    if (!known->loaded) {
      if (!MakeRoom(known->most, /*evict=*/true, /*used=*/true, callers_[known->name])) {
        return AdapterTable::Progress::kNoRoom;
      }
      const int64_t size = disk_->at(known->name);
      if (size < 0) {
        error = absl::StatusCode::kFailedPrecondition;
      } else if (size + kSlack > kLimit) {
        error = absl::StatusCode::kResourceExhausted;
      } else {
        const bool fits = size + kSlack <= known->most;
        known->most = size + kSlack;
        if (!fits) return AdapterTable::Progress::kDone;
        Put(known, size);
      }
    }
    for (const RequestId id : known->waiting) {
      const int64_t size = known->loaded ? loaded_[*known->loaded].size : 0;
      got->push_back({id, size, error});
      if (known->loaded) Take(id, *known->loaded);
    }
    known->waiting.clear();
    std::erase(wanted_, known->name);
    return AdapterTable::Progress::kDone;
  }

 private:
  void Put(Known* known, int64_t size) {
    known->loaded = loaded_.size();
    loaded_.push_back({size});
  }
  void Take(RequestId id, size_t loaded) {
    users_[id] = loaded;
    ++loaded_[loaded].users;
  }
  void Drop(Known* known) {
    if (known->loaded) loaded_[*known->loaded].served = false;
    known->loaded.reset();
  }
  int64_t Served() const {
    int64_t bytes = 0;
    for (const Loaded& each : loaded_) bytes += each.served ? each.size : 0;
    return bytes;
  }
  std::string OwnerOf(const Known& known) const {
    return clock_->Now() - known.time < AdapterTable::kOwned ? known.owner : "";
  }
  int64_t OwnedBy(const std::string& caller) const {
    int64_t bytes = 0;
    for (const Known& each : known_) {
      if (each.loaded && OwnerOf(each) == caller) bytes += loaded_[*each.loaded].size;
    }
    return bytes;
  }
  bool MakeRoom(int64_t bytes, bool evict, bool used, const std::string& caller) {
    while (evict && Served() + bytes > kLimit) {
      const int64_t own = caller.empty() ? 0 : OwnedBy(caller);
      const auto weight = [&](const Known& each) {
        const std::string owner = OwnerOf(each);
        return owner.empty() ? 10 * kLimit : OwnedBy(owner) + (owner == caller ? bytes : 0);
      };
      std::vector<Known*> victims;
      for (Known& each : known_) {
        if (!each.loaded || (!used && loaded_[*each.loaded].users > 0)) continue;
        if (own > 0 && OwnerOf(each) != caller && weight(each) <= own + bytes) continue;
        victims.push_back(&each);
      }
      if (victims.empty()) break;
      std::ranges::sort(victims, {}, &Known::used);
      std::ranges::stable_sort(victims, std::greater<>(),
                               [&](Known* each) { return weight(*each); });
      std::ranges::stable_partition(victims,
                                    [&](Known* each) { return loaded_[*each->loaded].users == 0; });
      Drop(victims.front());
    }
    return Bytes() + bytes <= kLimit;
  }

  const Disk* const disk_;
  const FakeClock* const clock_;
  std::vector<Known> known_;
  std::vector<Loaded> loaded_;
  std::map<RequestId, size_t> users_;
  std::vector<std::string> wanted_;
  std::map<std::string, std::string> callers_;  // of wanted loads
  std::vector<RequestId> failed_;
  std::map<std::string, uint64_t> rounds_, round_of_;
  uint64_t round_ = 0, uses_ = 0;
};

class DrawnHistory : public ::testing::TestWithParam<uint64_t> {
 protected:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  std::string Name() { return absl::StrCat("a", Below(12)); }
  std::string Caller() { return absl::StrCat("caller", Below(3)); }
  int64_t Size() { return 1 + Below(50); }

  void LoadOne() {
    const std::string name = Name();
    disk_[name] = Below(8) == 0 ? (Below(2) == 0 ? -1 : kLimit) : Size();
    const bool evict = Below(2) == 0;
    const auto room = evict ? AdapterTable::Room::kEvictIdle : AdapterTable::Room::kFree;
    const absl::Status loaded = table_.Load(On(&disk_, name), room);
    ASSERT_EQ(loaded.ok(), reference_.Load(name, evict)) << loaded;
  }
  void Call() {
    const std::string name = Name(), caller = Caller();
    const RequestId id = ++last_id_;
    auto used = table_.Use(name, caller);
    const auto expected = reference_.Use(name, caller, id);
    ASSERT_EQ(used.ok(), expected.has_value());
    if (!used.ok()) {
      ASSERT_EQ(used.status().code(), absl::StatusCode::kNotFound);
      return;
    }
    ASSERT_EQ(*used == nullptr ? 0 : (*used)->weights->bytes(), *expected) << name;
    if (*used != nullptr) {
      running_[id] = *std::move(used);
    } else {
      table_.Await(name, caller, id);
      reference_.Await(name, caller, id);
    }
  }
  void EndOne() {
    if (running_.empty()) return;
    const auto ended = std::next(running_.begin(), Below(std::ssize(running_)));
    reference_.End(ended->first);
    running_.erase(ended);
  }
  AdapterTable::Progress LoadNext() {
    std::vector<Got> got, expected;
    const AdapterTable::Progress progress = table_.LoadNext([&](RequestId id, auto adapter) {
      got.push_back({id, adapter.ok() ? (*adapter)->weights->bytes() : 0, adapter.status().code()});
      if (adapter.ok()) running_[id] = *std::move(adapter);
    });
    EXPECT_EQ(progress, reference_.LoadNext(&expected));
    EXPECT_EQ(got, expected);
    return progress;
  }
  void CheckState() {
    ASSERT_EQ(table_.Names(), reference_.Names());
    ASSERT_EQ(table_.bytes(), reference_.Bytes());
    ASSERT_EQ(table_.bytes(), executable_.live);
    ASSERT_LE(table_.bytes(), kLimit);
  }

  std::mt19937_64 random_{GetParam()};
  Disk disk_;
  Sized executable_;
  FakeClock clock_;
  AdapterTable table_{"m", &executable_, kLimit, &clock_};
  Reference reference_{&disk_, &clock_};
  std::map<RequestId, std::shared_ptr<const ServedAdapter>> running_;
  RequestId last_id_ = 0;
};

TEST_P(DrawnHistory, HasTheStatesOfTheReference) {
  SCOPED_TRACE(absl::StrCat("seed ", GetParam()));
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE(absl::StrCat("operation ", i));
    const int64_t kind = Below(100);
    if (kind < 8) {
      LoadOne();
    } else if (kind < 12) {
      const std::string name = Name();
      ASSERT_EQ(table_.Unload(name).ok(), reference_.Unload(name));
    } else if (kind < 14 && !disk_.empty()) {
      // The files change without a load.
      std::next(disk_.begin(), Below(std::ssize(disk_)))->second = Below(3) == 0   ? -1
                                                                   : Below(3) == 0 ? kLimit
                                                                                   : Size();
    } else if (kind < 16) {
      clock_.Advance(std::chrono::seconds(Below(30)));
    } else if (kind < 50) {
      Call();
    } else if (kind < 75) {
      EndOne();
    } else {
      LoadNext();
    }
    ASSERT_NO_FATAL_FAILURE(CheckState());
  }
  // Every request ends, whatever waits.
  for (int i = 0; i < 100'000; ++i) {
    if (LoadNext() == AdapterTable::Progress::kIdle) break;
    EndOne();
  }
  ASSERT_EQ(LoadNext(), AdapterTable::Progress::kIdle);
  while (!running_.empty()) EndOne();
  for (const std::string& name : table_.Names()) ASSERT_TRUE(table_.Unload(name).ok());
  EXPECT_EQ(table_.bytes(), 0);
  EXPECT_EQ(executable_.live, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnHistory, ::testing::Range<uint64_t>(1, 41));

class SmallTable : public ::testing::Test {
 protected:
  void Load(const std::string& name, int64_t size) {
    disk_[name] = size;
    ASSERT_EQ(table_.Load(On(&disk_, name), AdapterTable::Room::kFree), absl::OkStatus());
  }
  // Returns whether the adapter was in memory. Loads it otherwise.
  bool Call(const std::string& name, const std::string& caller) {
    const bool loaded = *table_.Use(name, caller) != nullptr;
    if (loaded) return true;
    table_.Await(name, caller, 1);
    EXPECT_EQ(table_.LoadNext([](RequestId, auto adapter) { EXPECT_TRUE(adapter.ok()); }),
              AdapterTable::Progress::kDone);
    return false;
  }

  Disk disk_;
  Sized executable_;
  FakeClock clock_;
  AdapterTable table_{"m", &executable_, kLimit, &clock_};
};

TEST_F(SmallTable, EvictsTheLeastRecentlyUsed) {
  for (const char* name : {"a", "b", "c", "d"}) Load(name, 25);
  EXPECT_EQ(table_.bytes(), 75) << "there is no room for the fourth with its reservation";
  EXPECT_TRUE(Call("a", "x"));
  EXPECT_TRUE(Call("b", "x"));
  EXPECT_FALSE(Call("d", "x"));
  EXPECT_TRUE(Call("a", "x"));
  EXPECT_TRUE(Call("b", "x"));
  EXPECT_FALSE(Call("c", "x")) << "was evicted";
  EXPECT_FALSE(Call("d", "x")) << "was used before a and b";
}

TEST_F(SmallTable, ListsTheLoadedAdaptersInTheSameOrderAfterAnyUse) {
  for (const char* name : {"b", "a", "c"}) Load(name, 25);
  const std::vector<std::string> expected = {"a", "b", "c"};
  EXPECT_EQ(table_.Stats().loaded, expected);
  EXPECT_TRUE(Call("a", "x"));
  EXPECT_EQ(table_.Stats().loaded, expected);
  EXPECT_TRUE(Call("b", "x"));
  EXPECT_EQ(table_.Stats().loaded, expected);
}

TEST_F(SmallTable, TheCountsOfTheOthersNeverDecrease) {
  constexpr int64_t kMany = AdapterTableStats::kMaxNamed + 8;
  const auto name = [](int64_t i) { return absl::StrCat("a", i); };
  int64_t others = 0;
  // Checks the counts after `expected` loads.
  const auto check = [&](int64_t expected) {
    const AdapterTableStats stats = table_.Stats();
    EXPECT_GE(stats.others.counts.loads, others);
    others = stats.others.counts.loads;
    int64_t loads = others;
    for (const AdapterStats& each : stats.named) loads += each.counts.loads;
    EXPECT_EQ(loads, expected);
  };
  for (int64_t i = 0; i < kMany; ++i) {
    Load(name(i), 1);
    check(i + 1);
  }
  for (int64_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(Call(name(i), "x"));
    check(kMany);
  }
  Load(name(0), 1);
  check(kMany + 1);
  EXPECT_EQ(others, kMany) << "the last load counts for a series of its own";
  for (int64_t i = 0; i < kMany; i += 2) {
    EXPECT_EQ(table_.Unload(name(i)), absl::OkStatus());
    check(kMany + 1);
  }
}

// A caller that cycles through many adapters evicts its own once it owns as much as the others.
TEST_F(SmallTable, ACallerThatCyclesThroughAdaptersLeavesTheOthersTheirShare) {
  for (int i = 0; i < 20; ++i) Load(absl::StrCat("many", i), 10);
  for (const char* name : {"own0", "own1", "own2"}) Load(name, 10);
  for (const char* name : {"own0", "own1", "own2"}) Call(name, "steady");
  int evicted = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 20; ++i) Call(absl::StrCat("many", i), "cycling");
    for (const char* name : {"own0", "own1", "own2"}) evicted += !Call(name, "steady");
  }
  EXPECT_EQ(evicted, 0);
  clock_.Advance(AdapterTable::kOwned);
  Call("many0", "cycling");
  for (int i = 0; i < 20; ++i) Call(absl::StrCat("many", i), "cycling");
  EXPECT_FALSE(Call("own0", "steady")) << "it was not used for a minute";
}

TEST_F(SmallTable, CallersTakeTurnsToLoad) {
  for (int i = 0; i < 8; ++i) Load(absl::StrCat("a", i), 90);
  EXPECT_FALSE(Call("a7", "first"));
  for (int i = 1; i < 5; ++i)
    table_.Await(absl::StrCat("a", i), "first", static_cast<RequestId>(i));
  for (int i = 5; i < 7; ++i) {
    table_.Await(absl::StrCat("a", i), "second", static_cast<RequestId>(i));
  }
  std::vector<RequestId> order;
  while (table_.LoadNext([&](RequestId id, auto) { order.push_back(id); }) ==
         AdapterTable::Progress::kDone) {
  }
  EXPECT_EQ(order, (std::vector<RequestId>{5, 1, 6, 2, 3, 4}));
}

TEST_F(SmallTable, ALoadWaitsForTheRequestsOfAnAdapterThatItEvicts) {
  Load("a", 60);
  Load("b", 60);
  auto used = table_.Use("a", "x").value();
  ASSERT_NE(used, nullptr);
  table_.Await("b", "x", 7);
  const auto next = [&](std::vector<RequestId>* delivered) {
    return table_.LoadNext([&](RequestId id, auto) { delivered->push_back(id); });
  };
  std::vector<RequestId> delivered;
  EXPECT_EQ(next(&delivered), AdapterTable::Progress::kNoRoom);
  EXPECT_EQ(table_.Use("a", "x").value(), nullptr) << "new requests for it wait for their turn";
  const uint64_t seen = table_.changes();
  used.reset();
  EXPECT_NE(table_.changes(), seen);
  EXPECT_EQ(next(&delivered), AdapterTable::Progress::kDone);
  EXPECT_EQ(delivered, std::vector<RequestId>{7});
}

TEST_F(SmallTable, AnAdapterThatIsReplacedDuringItsLoadIsLoadedAgain) {
  Load("a", 60);
  disk_["b"] = 60;
  int reads = 0;
  const AdapterSource replaced = {"b", [&] {
                                    auto old = On(&disk_, "b").read();
                                    if (++reads == 2) Load("b", 50);
                                    return old;
                                  }};
  ASSERT_EQ(table_.Load(replaced, AdapterTable::Room::kFree), absl::OkStatus());
  table_.Await("b", "x", 7);
  std::vector<int64_t> sizes;
  while (table_.LoadNext([&](RequestId, auto adapter) {
    sizes.push_back(adapter.ok() ? (*adapter)->weights->bytes() : 0);
  }) == AdapterTable::Progress::kDone) {
  }
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(sizes, std::vector<int64_t>{50});
}

TEST_F(SmallTable, AnAdapterAboveTheLimitIsRefusedWithTheOption) {
  disk_["a"] = kLimit;
  const absl::Status refused = table_.Load(On(&disk_, "a"), AdapterTable::Room::kEvictIdle);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("adapter a takes 103 bytes; the limit of all adapters of the model is 100. "
                        "Raise the model's option adapter_memory_bytes"));
  EXPECT_THAT(table_.Names(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sluice
