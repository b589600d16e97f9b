// The value of a term, computed from its definition: the reference for rewrites and lowerings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

using Point = std::map<std::string, int64_t>;  // by rank

class TermValues {
 public:
  // `sizes` are the sizes of the symbols, and `inputs` the tensors' values, the last rank
  // innermost.
  TermValues(const TermPool& pool, std::map<std::string, int64_t> sizes,
             std::map<std::string, std::vector<double>> inputs)
      : pool_(pool), sizes_(std::move(sizes)), inputs_(std::move(inputs)) {}

  // Returns nothing if the term has no value. Requires an index for each free rank.
  std::optional<double> At(TermId id, const Point& point);
  // Returns the values at all points of the ranks, the last rank innermost. A point without a value
  // is -inf for a maximum and 0 for any other term, as in the results of an interpreter.
  std::vector<double> All(TermId id, const std::vector<std::string>& ranks);

  int64_t SizeOf(const std::string& rank) const;
  const std::map<std::string, int64_t>& sizes() const { return sizes_; }
  const std::map<std::string, std::vector<double>>& inputs() const { return inputs_; }

 private:
  std::optional<double> Compute(const Term& term, Point point);
  std::optional<double> Reduced(const Term& term, Point point);
  std::optional<double> Streamed(const Term& term, Point point);
  std::optional<double> Read(const Access& access, const Point& point) const;
  int64_t IndexAt(const Index& index, const Point& point) const;
  bool Admits(const std::vector<Condition>& where, const Point& point) const;

  const TermPool& pool_;
  std::map<std::string, int64_t> sizes_;
  std::map<std::string, std::vector<double>> inputs_;
  std::map<std::pair<TermId, std::vector<int64_t>>, std::optional<double>> known_;
};

}  // namespace sluice::einsum
