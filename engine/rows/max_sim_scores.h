// The scores of a request's documents, by the vectors of its queries and documents.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/model/output_heads.h"
#include "engine/request.h"
#include "kernels/cpu/max_sim.h"

namespace sluice {

class MaxSimScores {
 public:
  // `request` must outlive it and request kOutputMaxSim.
  explicit MaxSimScores(const Request& request);

  // Takes the vectors of a row, and writes each score whose query and document are known to
  // `reply`. Has no effect for a row that was taken before.
  void Take(int32_t row, std::vector<float> vectors, Divide divide, Reply* reply);

 private:
  int32_t QueryOf(int32_t row) const { return queries_.size() == 1 ? 0 : row - QueryCount(); }
  int32_t QueryCount() const { return static_cast<int32_t>(std::ssize(queries_)); }
  void Score(int32_t row, Reply* reply) const;

  const int64_t width_;
  const bool mean_;
  std::vector<std::optional<kernels::MaxSimQuery>> queries_;
  std::vector<std::vector<float>> rows_;  // the vectors of documents that wait for their query
  std::vector<char> taken_;
};

}  // namespace sluice
