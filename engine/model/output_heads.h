// Computes outputs on the host from a state after the last norm: the scores of a classifier, and
// the scores of single rows of the head.
//
// Scores are computed in double, each as one sum over ascending blocks of the state
// (kernels/cpu/state_products.h), rounded once to float. A score is therefore the same for every
// device, batch and order. The score of a row of the head is more exact than the device's logit,
// but not bit-identical to it. Weights are read from the checkpoint, in its dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/graph.h"

namespace sluice {

// Calls body(begin, end) for disjoint ranges that cover [0, n) and are at most `grain` long, on the
// threads that the model provides for this (ExecutableModel::ParallelFor).
using Divide =
    absl::FunctionRef<void(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)>)>;
// Calls `body` once, on this thread.
inline void Undivided(int64_t n, int64_t /*grain*/,
                      absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (n > 0) body(0, n);
}

// Returns x (1 + erf(x / sqrt(2))) / 2 without cancellation at negative x.
double Gelu(double x);

// A matrix [rows, width] with an optional bias [rows].
class StoredLinear {
 public:
  // `bias` is the name of a tensor, or empty for none. Errors name the tensor.
  static absl::StatusOr<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& weight,
                                           const std::string& bias, int64_t rows, int64_t width);

  int64_t rows() const { return weight_.shape[0]; }
  // Returns the bytes of the values.
  int64_t bytes() const;
  // Copies the values, so that they do not need the checkpoint any more.
  void CopyValues();
  // Returns scale * row . state + bias; `state` is [width].
  double At(int64_t row, std::span<const double> state, double scale = 1) const;
  // Returns At of all rows for each of the states, [n, width], as [n, rows].
  std::vector<double> Times(std::span<const double> states, Divide divide) const;
  // Returns the inner product of two rows, without bias.
  double Product(int64_t a, int64_t b) const;

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
  std::shared_ptr<const std::vector<std::byte>> copy_;  // nullptr: the checkpoint has the values
};

// Single rows of the head of a model.
class ItemHead {
 public:
  // Requires that `op` is the head of the model's graph.
  static absl::StatusOr<ItemHead> Find(const ModelConfig& config, const HeadOp& op,
                                       const Checkpoint& checkpoint);

  // Returns the logit of `id`, which is in [0, vocab).
  double Score(int32_t id, std::span<const double> state) const;
  // Returns the inner product of the vectors of two items.
  double Product(int32_t a, int32_t b) const { return rows_->Product(a, b); }

 private:
  std::optional<StoredLinear> rows_;
  double scale_ = 1;
  double soft_cap_ = 0;
};

// The modules that an adapter saves in place of the model's.
struct SavedModules {
  const Checkpoint& checkpoint;
  std::string prefix;  // of the names of their tensors
};

// The classifier, after the pooler and its activation if there is a pooler.
class Classifier {
 public:
  // Finds the layers of `wanted`, which has labels and needs no logits. With `saved`, a module's
  // tensors are the saved ones if there are any.
  static absl::StatusOr<Classifier> Find(const ModelConfig& config, const ClassifierConfig& wanted,
                                         const Checkpoint& checkpoint,
                                         const SavedModules* saved = nullptr);
  // Returns the classifier whose only score comes from logits of `head`.
  static Classifier OfLogits(const LogitScore& score, const ItemHead& head);

  // Computes the raw scores, [labels], of a pooled state.
  void Score(std::span<const double> pooled, std::vector<double>* scores,
             Divide divide = Undivided) const;

  // Returns the pooler's module, as in "bert.pooler.dense"; empty if there is none.
  const std::string& pooler_module() const { return pooler_module_; }
  // Returns the module of the scores, as in "classifier"; empty if they come from logits.
  const std::string& module() const { return module_; }
  // Returns the output of the pooler's module before its activation, [hidden]; empty if there is
  // none.
  std::vector<double> Pooler(std::span<const double> pooled, Divide divide = Undivided) const;

  // Returns the names of the saved tensors that it uses.
  const std::vector<std::string>& saved_tensors() const { return saved_tensors_; }
  // Returns the bytes of their values.
  int64_t saved_bytes() const;
  // Returns a classifier that does not need the checkpoint of the saved modules.
  Classifier WithCopies() const;

 private:
  std::string module_, pooler_module_;
  std::optional<ItemHead> head_;  // instead of the other members
  LogitScore logits_;
  std::optional<StoredLinear> pooler_;
  std::optional<StoredLinear> classifier_;
  PoolerActivation activation_ = PoolerActivation::kTanh;
  std::vector<float> norm_weight_, norm_bias_;  // empty for none
  double norm_eps_ = 0;
  std::vector<std::string> saved_tensors_;
  bool saved_pooler_ = false, saved_norm_ = false, saved_classifier_ = false;
};

// These work in place, over all of `values`. A value of -inf contributes nothing, and LogSoftmax
// leaves it at -inf.
void Softmax(std::span<double> values);
void LogSoftmax(std::span<double> values);
void Sigmoid(std::span<double> values);

}  // namespace sluice
