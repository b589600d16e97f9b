#include "engine/schedule/due_totals.h"

#include <tuple>

#include "base/check.h"

namespace sluice {
namespace {

// A bijection whose bits look random (the finalizer of SplitMix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

bool DueTotals::Above(const Node& a, const Node& b) {
  return Mix(a.key.second) > Mix(b.key.second);
}

void DueTotals::Update(int32_t node) {
  Node& n = nodes_[node];
  const Total left = TotalOf(n.left), right = TotalOf(n.right);
  n.total = {.sequences = left.sequences + right.sequences + 1,
             .tokens = left.tokens + right.tokens + n.tokens};
}

void DueTotals::Insert(const Key& key, int64_t tokens) {
  int32_t node = static_cast<int32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
    free_.reserve(nodes_.capacity());
  } else {
    node = free_.back();
    free_.pop_back();
  }
  nodes_[node] = {.key = key, .tokens = tokens};
  Update(node);
  root_ = Insert(root_, node);
}

int32_t DueTotals::Insert(int32_t root, int32_t node) {
  if (root == kNone) return node;
  if (Above(nodes_[node], nodes_[root])) {
    std::tie(nodes_[node].left, nodes_[node].right) = Split(root, nodes_[node].key);
    Update(node);
    return node;
  }
  int32_t& side = nodes_[node].key < nodes_[root].key ? nodes_[root].left : nodes_[root].right;
  side = Insert(side, node);
  Update(root);
  return root;
}

void DueTotals::Erase(const Key& key) { root_ = Erase(root_, key); }

int32_t DueTotals::Erase(int32_t root, const Key& key) {
  SLUICE_CHECK(root != kNone);
  Node& node = nodes_[root];
  if (node.key == key) {
    free_.push_back(root);
    return Join(node.left, node.right);
  }
  int32_t& side = key < node.key ? node.left : node.right;
  side = Erase(side, key);
  Update(root);
  return root;
}

std::pair<int32_t, int32_t> DueTotals::Split(int32_t root, const Key& key) {
  if (root == kNone) return {kNone, kNone};
  Node& node = nodes_[root];
  std::pair<int32_t, int32_t> parts;
  if (node.key < key) {
    parts = Split(node.right, key);
    node.right = parts.first;
    parts.first = root;
  } else {
    parts = Split(node.left, key);
    node.left = parts.second;
    parts.second = root;
  }
  Update(root);
  return parts;
}

int32_t DueTotals::Join(int32_t left, int32_t right) {
  if (left == kNone) return right;
  if (right == kNone) return left;
  if (Above(nodes_[left], nodes_[right])) {
    nodes_[left].right = Join(nodes_[left].right, right);
    Update(left);
    return left;
  }
  nodes_[right].left = Join(left, nodes_[right].left);
  Update(right);
  return right;
}

DueTotals::Total DueTotals::DueBy(MonoTime deadline) const {
  Total due;
  for (int32_t node = root_; node != kNone;) {
    const Node& n = nodes_[node];
    if (n.key.first > deadline) {
      node = n.left;
      continue;
    }
    const Total left = TotalOf(n.left);
    due.sequences += left.sequences + 1;
    due.tokens += left.tokens + n.tokens;
    node = n.right;
  }
  return due;
}

}  // namespace sluice
