// Random cascades that Check accepts, for properties of text, interpreter and analysis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

class RandomCascade {
 public:
  explicit RandomCascade(uint64_t seed) : random_(seed) {}

  Cascade Make() {
    if (Draw(0, 3) > 0) cascade_.name = absl::StrCat("c_", Draw(0, 99));
    for (int64_t n = Draw(1, 5); n > 0; --n) AddRank();
    for (int64_t n = Draw(1, 3); n > 0; --n) AddInput();
    for (int64_t n = Draw(1, 5); n > 0; --n) {
      if (Draw(0, 3) == 0) {
        AddIteration();
      } else {
        Einsum einsum = MakeEinsum(SomeRanks());
        readable_.push_back(Declare(einsum.out.tensor, RanksOfIndices(einsum.out.indices)));
        cascade_.statements.push_back(std::move(einsum));
      }
    }
    return cascade_;
  }

  // Returns sizes of at most `most` for the symbols of the ranks.
  Sizes MakeSizes(int64_t most) {
    Sizes sizes;
    for (const Rank& rank : cascade_.ranks) {
      if (!rank.size.symbol.empty()) sizes[rank.size.symbol] = Draw(1, most);
    }
    return sizes;
  }

  NamedValues MakeInputs(const Sizes& sizes) {
    NamedValues inputs;
    for (const Tensor& tensor : inputs_) {
      Values& values = inputs[tensor.name];
      int64_t volume = 1;
      for (const std::string& rank : tensor.ranks) {
        for (const Rank& each : cascade_.ranks) {
          if (each.name == rank) values.shape.push_back(*SizeOf(each, sizes));
        }
        volume *= values.shape.back();
      }
      for (; volume > 0; --volume) values.values.push_back(static_cast<double>(Draw(-9, 9)) / 4);
    }
    return inputs;
  }

 private:
  int64_t Draw(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }

  template <typename T>
  const T& OneOf(const std::vector<T>& items) {
    return items[Draw(0, std::ssize(items) - 1)];
  }

  void AddRank() {
    const std::string name = absl::StrCat("r", cascade_.ranks.size());
    Size size{.symbol = "", .divisor = Draw(1, 4)};
    if (Draw(0, 3) > 0) size.symbol = absl::StrCat("size_", Draw(0, 3));
    cascade_.ranks.push_back({name, size});
  }

  std::vector<std::string> SomeRanks() {
    std::vector<std::string> ranks;
    for (const Rank& rank : cascade_.ranks) {
      if (Draw(0, 1) == 1) ranks.push_back(rank.name);
    }
    std::shuffle(ranks.begin(), ranks.end(), random_);
    return ranks;
  }

  void AddInput() {
    inputs_.push_back({.name = absl::StrCat("I", inputs_.size()),
                       .ranks = SomeRanks(),
                       .home = static_cast<Home>(Draw(0, 3)),
                       .bytes_per_value = static_cast<double>(Draw(1, 16)) / 2});
    cascade_.tensors.push_back(inputs_.back());
    readable_.push_back(inputs_.back());
  }

  // Lists half of the results among the tensors.
  Tensor Declare(const std::string& name, const std::vector<std::string>& ranks) {
    Tensor tensor{.name = name, .ranks = ranks, .home = static_cast<Home>(Draw(0, 3))};
    if (Draw(0, 1) == 1) cascade_.tensors.push_back(tensor);
    return tensor;
  }

  static std::vector<std::string> RanksOfIndices(const std::vector<Index>& indices) {
    std::vector<std::string> ranks;
    for (const Index& index : indices) ranks.push_back(index.terms[0].rank);
    return ranks;
  }

  Index MakeIndex(const std::vector<std::string>& space) {
    if (!space.empty() && Draw(0, 2) > 0) return {.terms = {{OneOf(space)}}};
    Index index{.terms = {}, .offset = Draw(-2, 2)};
    for (const std::string& rank : space) {
      const int64_t factor = Draw(-6, 4);
      if (factor >= -2 && factor != 0) index.terms.push_back({rank, factor});
    }
    if (Draw(0, 3) == 0) index.end_of = OneOf(cascade_.ranks).name;
    return index;
  }

  Access MakeOperand(const std::vector<std::string>& space) {
    if (Draw(0, 7) == 0) {
      const double values[] = {0, -2, 0.1, 1e300, 7e-5, std::numeric_limits<double>::infinity()};
      return {.tensor = {}, .constant = (Draw(0, 1) == 0 ? 1 : -1) * values[Draw(0, 5)]};
    }
    const Tensor& tensor = OneOf(readable_);
    Access access{.tensor = tensor.name};
    for (size_t i = 0; i < tensor.ranks.size(); ++i) access.indices.push_back(MakeIndex(space));
    return access;
  }

  // Returns an einsum that writes a new tensor at the ranks and reduces some of the others, but
  // not `iterated`.
  Einsum MakeEinsum(const std::vector<std::string>& ranks, const std::string& iterated = "") {
    Einsum einsum{.out = {.tensor = absl::StrCat("T", results_++)}, .in = {}};
    std::vector<std::string> space = ranks;
    for (const std::string& rank : ranks) einsum.out.indices.push_back({.terms = {{rank}}});
    const Op reduce_op = OneOf<Op>({Op::kAdd, Op::kMultiply, Op::kMax, Op::kMin});
    const Merge reduce_merge = Draw(0, 3) == 0 ? Merge::kAll : Merge::kOr;
    for (const std::string& rank : SomeRanks()) {
      if (rank == iterated || std::find(space.begin(), space.end(), rank) != space.end()) continue;
      einsum.reduce.push_back({rank, reduce_op, reduce_merge});
      space.push_back(rank);
    }
    for (int64_t n = Draw(1, 2); n > 0; --n) einsum.in.push_back(MakeOperand(space));
    if (einsum.in.size() == 2) {
      einsum.map = static_cast<Op>(Draw(0, 5));
      einsum.map_merge = static_cast<Merge>(Draw(0, 3));
      const bool is_partial = einsum.map == Op::kSubtract || einsum.map == Op::kDivide;
      if (is_partial && einsum.map_merge != Merge::kLeft) einsum.map_merge = Merge::kAnd;
    }
    if (Draw(0, 2) == 0) einsum.unary = static_cast<Function>(Draw(0, 10));
    for (int64_t n = Draw(-2, 2); n > 0; --n) {
      einsum.where.push_back(
          {MakeIndex(space), static_cast<Comparison>(Draw(0, 2)), MakeIndex(space)});
    }
    return einsum;
  }

  // Adds an iteration with one carried tensor, which its body updates by a local one.
  void AddIteration() {
    Iteration iteration{.rank = OneOf(cascade_.ranks).name, .init = {}, .body = {}};
    std::vector<std::string> ranks = SomeRanks();
    std::erase(ranks, iteration.rank);
    Einsum init = MakeEinsum(ranks, iteration.rank);
    const int64_t position = Draw(0, std::ssize(ranks));
    ranks.insert(ranks.begin() + position, iteration.rank);
    Einsum local = MakeEinsum(ranks, iteration.rank);
    Einsum update{
        .out = local.out, .in = {local.out, local.out}, .map = Op::kMax, .map_merge = Merge::kOr};
    init.out.indices.insert(init.out.indices.begin() + position, Index{});
    update.in[0].tensor = update.out.tensor = init.out.tensor;
    update.out.indices[position].offset = 1;
    readable_.push_back(Declare(init.out.tensor, ranks));
    readable_.push_back(Declare(local.out.tensor, ranks));
    iteration.init.push_back(std::move(init));
    iteration.body = {std::move(local), std::move(update)};
    cascade_.statements.push_back(std::move(iteration));
  }

  std::mt19937_64 random_;
  Cascade cascade_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> readable_;
  int64_t results_ = 0;
};

}  // namespace sluice::einsum
