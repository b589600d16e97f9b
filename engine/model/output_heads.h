// What is computed of a state behind the last norm on the host: scores of a classifier, and of single
// rows of the head.
//
// In double, each number one sum over ascending blocks of the state, rounded once to float: so the same
// whatever device, batch or order, and for a row of the head as near to the truth as can be, though not
// the bits of the device's logits. Weights are read where they lie in the checkpoint, in its dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/graph.h"

namespace sluice {

// A matrix [rows, width] with a bias [rows] or none.
class StoredLinear {
 public:
  // `bias`: a tensor's name, empty for none. Errors name the tensor.
  static absl::StatusOr<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& weight,
                                           const std::string& bias, int64_t rows, int64_t width);

  int64_t rows() const { return weight_.shape[0]; }
  // row . state + bias; `state` is [width].
  double At(int64_t row, std::span<const double> state) const;

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
};

// tanh(pooler) where there is one, then the classifier.
class Classifier {
 public:
  // `config` has one.
  static absl::StatusOr<Classifier> Find(const ModelConfig& config, const Checkpoint& checkpoint);

  // Raw scores, [labels], of a pooled state.
  void Score(std::span<const double> pooled, std::vector<double>* scores) const;

  // Returns the pooler's module, as in "bert.pooler.dense"; empty if there is none.
  const std::string& pooler_module() const { return pooler_module_; }
  // Returns the output of the pooler's module before tanh, [hidden]; empty if there is none.
  std::vector<double> Pooler(std::span<const double> pooled) const;

 private:
  std::string pooler_module_;
  std::optional<StoredLinear> pooler_;
  std::optional<StoredLinear> classifier_;
};

// Single rows of the model's head.
class ItemHead {
 public:
  // `op` is the graph's.
  static absl::StatusOr<ItemHead> Find(const ModelConfig& config, const HeadOp& op,
                                       const Checkpoint& checkpoint);

  // The logit of `id`, which is in [0, vocab).
  double Score(int32_t id, std::span<const double> state) const;

 private:
  std::optional<StoredLinear> rows_;
  double soft_cap_ = 0;
};

// In place, over all of `values`; -inf counts as nothing, and stays -inf where the logarithm is taken.
void Softmax(std::span<double> values);
void LogSoftmax(std::span<double> values);
void Sigmoid(std::span<double> values);

}  // namespace sluice
