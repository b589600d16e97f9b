#include "engine/rows/max_sim_scores.h"

#include <utility>

namespace sluice {

MaxSimScores::MaxSimScores(const Request& request)
    : width_(request.spec->model->config.vector_size()),
      mean_(request.spec->model->config.serving.mean_of_maxima),
      queries_(request.queries),
      rows_(request.rows()),
      taken_(request.rows()) {}

void MaxSimScores::Take(int32_t row, std::vector<float> vectors, Divide divide, Reply* reply) {
  if (std::exchange(taken_[row], 1) != 0) return;
  if (row >= QueryCount()) {
    rows_[row] = std::move(vectors);
    if (queries_[QueryOf(row)]) Score(row, reply);
    if (queries_[QueryOf(row)]) rows_[row] = {};
    return;
  }
  queries_[row].emplace(kernels::BestProfile(), vectors, width_);
  std::vector<int32_t> waiting;
  for (int32_t document = QueryCount(); document < std::ssize(rows_); ++document) {
    if (taken_[document] != 0 && QueryOf(document) == row) waiting.push_back(document);
  }
  divide(std::ssize(waiting), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Score(waiting[i], reply);
  });
  for (const int32_t document : waiting) rows_[document] = {};
}

void MaxSimScores::Score(int32_t row, Reply* reply) const {
  const kernels::MaxSimQuery& query = *queries_[QueryOf(row)];
  const double sum = query.Score(rows_[row]);
  const bool divides = mean_ && query.vectors() > 0;
  reply->max_sim[row - QueryCount()] =
      static_cast<float>(divides ? sum / static_cast<double>(query.vectors()) : sum);
}

}  // namespace sluice
