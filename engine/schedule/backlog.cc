#include "engine/schedule/backlog.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

// The time constant of the mean share. It is longer than the fluctuations of a queue of about a
// second, and much shorter than the deadlines that are worth waiting for.
constexpr double kShareSeconds = 10;

// Below this share, the time until an entry is taken is unknown but long.
constexpr double kMinShare = 1e-3;

constexpr double kMaxSeconds = 1e6;

}  // namespace

double Backlog::Share(MonoTime now) const {
  return share_ * std::exp(-Seconds(now - shared_at_) / kShareSeconds);
}

void Backlog::Add(const Entry& entry, MonoTime now) {
  if (empty()) {
    share_ = 1;
    shared_at_ = now;
    finish_times_.Clear();
  }
  SLUICE_CHECK(entries_.emplace(entry.id, entry).second);
  const Key key{entry.deadline, entry.id};
  deadlines_.insert(key);
  rows_ += entry.rows;
  service_ += entry.service;
  const FlowKey flow_key{entry.caller, entry.load.priority};
  Flow& flow = flows_[flow_key];
  if (flow.keys.empty()) {
    flow.start = finish_times_.StartOf(flow_key, virtual_now_);
    turns_.insert({Place(flow_key, flow), flow_key});
  }
  flow.keys.insert(key);
  flow.due.Insert(key, entry.service.count());
}

void Backlog::Erase(const Entry& entry) {
  const Key key{entry.deadline, entry.id};
  const FlowKey flow_key{entry.caller, entry.load.priority};
  const auto flow = flows_.find(flow_key);
  flow->second.keys.erase(key);
  flow->second.due.Erase(key);
  if (flow->second.keys.empty()) {
    turns_.erase({Place(flow_key, flow->second), flow_key});
    finish_times_.Set(flow_key, flow->second.start, virtual_now_);
    flows_.erase(flow);
  }
  deadlines_.erase(key);
  rows_ -= entry.rows;
  service_ -= entry.service;
  entries_.erase(entry.id);
}

std::optional<Backlog::Entry> Backlog::Remove(uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return std::nullopt;
  const Entry entry = it->second;
  Erase(entry);
  return entry;
}

const Backlog::Entry& Backlog::Next() const {
  SLUICE_CHECK(!empty());
  const Flow& flow = flows_.at(turns_.begin()->second);
  return entries_.at(flow.keys.begin()->second);
}

Backlog::Entry Backlog::TakeNext(MonoTime now) {
  const Entry entry = Next();
  share_ = Share(now) + Seconds(entry.service) / kShareSeconds;
  shared_at_ = now;
  const FlowKey flow_key = turns_.begin()->second;
  Flow& flow = flows_.at(flow_key);
  turns_.erase(turns_.begin());
  virtual_now_ = std::max(virtual_now_, flow.start);
  flow.start += entry.service;
  turns_.insert({Place(flow_key, flow), flow_key});
  Erase(entry);
  return entry;
}

nanoseconds Backlog::TimeUntil(const Entry& entry, MonoTime now) const {
  if (empty()) return nanoseconds(0);
  const auto flow = flows_.find(FlowKey{entry.caller, entry.load.priority});
  const bool is_new = flow == flows_.end();
  const int64_t own = is_new ? 0 : flow->second.due.DueBy(entry.deadline).tokens;
  const double flows = static_cast<double>(flows_.size()) + (is_new ? 1 : 0);
  const double ahead = std::min(Seconds(nanoseconds(own)) * flows, Seconds(service_));
  const double seconds = ahead / std::max(Share(now), kMinShare);
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kMaxSeconds)));
}

}  // namespace sluice
