// What to change about a model's buckets, and why. Pure.
#pragma once

#include <string>
#include <vector>

#include "proto/admin.pb.h"

namespace sluice::client {

struct Advice {
  std::string finding;  // what is seen, with its figure
  std::string action;   // what to do about it
};

// The most rewarding first. Empty: nothing to change. The rules, with their limits, are explained
// in docs/buckets.md.
std::vector<Advice> Advise(const admin::v1::ModelBuckets& model);

// A paragraph, wrapped.
std::string AdviceText(const std::vector<Advice>& advice);

}  // namespace sluice::client
