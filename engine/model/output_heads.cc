#include "engine/model/output_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/model/families/family.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/state_products.h"

namespace sluice {
namespace {

// The values of a row that are converted at a time.
constexpr int64_t kBlock = 512;

// The number of products that a thread computes at a time; they take some tens of microseconds.
constexpr int64_t kProductsTogether = 1 << 16;

// Returns the profile of products; all profiles give the same bits.
kernels::Profile ProfileOfProducts() {
  static const kernels::Profile profile = kernels::BestProfile();
  return profile;
}

// Writes the products of a row of a matrix with each of the states, [n, width].
void Multiply(const Tensor& weight, int64_t row, std::span<const double> states,
              std::span<double> products) {
  float values[kBlock];
  const int64_t width = weight.shape[1];
  std::ranges::fill(products, 0);
  for (int64_t first = 0; first < width; first += kBlock) {
    const int64_t count = std::min(kBlock, width - first);
    kernels::ConvertToFloat(weight.data, weight.dtype, row * width + first, count, values);
    kernels::AddStateProducts(ProfileOfProducts(), std::span(values, count), states.data() + first,
                              width, products);
  }
}

// Returns the logarithm of the sum of exponentials, or -inf if every value is -inf.
double LogSum(std::span<const double> values) {
  double most = -INFINITY;
  for (const double value : values) most = std::max(most, value);
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (const double value : values) sum += std::exp(value - most);
  return most + std::log(sum);
}

int64_t BytesOf(const Tensor& tensor) {
  return tensor.elements() * kernels::DTypeBytes(tensor.dtype);
}

// The place of a module's tensors.
struct ModulePlace {
  const Checkpoint& checkpoint;
  std::string name;  // of the module there
  bool saved;

  std::string weight() const { return name + ".weight"; }
  std::string bias() const { return name + ".bias"; }
};

// A checkpoint may have the family's prefix before the name of a module.
ModulePlace FindModule(const ModelConfig& config, const std::string& module,
                       const Checkpoint& checkpoint, const SavedModules* saved) {
  const std::string prefixed = config.family->names.prefix + module;
  for (const std::string& each : {prefixed, module}) {
    if (saved == nullptr) break;
    const std::string name = saved->prefix + each;
    if (saved->checkpoint.Lists(name + ".weight")) return {saved->checkpoint, name, true};
  }
  return {checkpoint, checkpoint.Has(prefixed + ".weight") ? prefixed : module, false};
}

absl::StatusOr<std::vector<float>> FindFloats(const Checkpoint& checkpoint, const std::string& name,
                                              int64_t count) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(name, {count}));
  std::vector<float> values(count);
  kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, count, values.data());
  return values;
}

double Activate(PoolerActivation activation, double value) {
  switch (activation) {
    case PoolerActivation::kTanh:
      return std::tanh(value);
    case PoolerActivation::kRelu:
      return std::max(value, 0.0);
    case PoolerActivation::kGelu:
      return Gelu(value);
  }
  return value;
}

void LayerNorm(double eps, std::span<const float> weight, std::span<const float> bias,
               std::span<double> state) {
  const auto size = static_cast<double>(state.size());
  double mean = 0, square = 0;
  for (const double value : state) mean += value / size;
  for (const double value : state) square += (value - mean) * (value - mean) / size;
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = (state[i] - mean) / std::sqrt(square + eps) * weight[i];
    if (!bias.empty()) state[i] += bias[i];
  }
}

}  // namespace

double Gelu(double x) { return x / 2 * std::erfc(-x * std::numbers::sqrt2 / 2); }

absl::StatusOr<StoredLinear> StoredLinear::Find(const Checkpoint& checkpoint,
                                                const std::string& weight, const std::string& bias,
                                                int64_t rows, int64_t width) {
  StoredLinear linear;
  SLUICE_ASSIGN_OR_RETURN(linear.weight_, checkpoint.Find(weight, {rows, width}));
  if (!bias.empty()) {
    SLUICE_ASSIGN_OR_RETURN(linear.bias_, checkpoint.Find(bias, {rows}));
  }
  return linear;
}

int64_t StoredLinear::bytes() const { return BytesOf(weight_) + (bias_ ? BytesOf(*bias_) : 0); }

void StoredLinear::CopyValues() {
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes());
  std::byte* next = copy->data();
  const auto move = [&](Tensor* tensor) {
    std::memcpy(next, tensor->data, BytesOf(*tensor));
    tensor->data = next;
    next += BytesOf(*tensor);
  };
  move(&weight_);
  if (bias_) move(&*bias_);
  copy_ = copy;
}

double StoredLinear::At(int64_t row, std::span<const double> state, double scale) const {
  double sum = 0;
  Multiply(weight_, row, state, {&sum, 1});
  sum *= scale;
  if (bias_) sum += kernels::LoadAsFloat(bias_->data, bias_->dtype, row);
  return sum;
}

std::vector<double> StoredLinear::Times(std::span<const double> states, Divide divide) const {
  const int64_t count = std::ssize(states) / weight_.shape[1];
  const int64_t together = std::max<int64_t>(kProductsTogether / std::ssize(states), 1);
  std::vector<double> values(count * rows());
  divide(rows(), together, [&](int64_t begin, int64_t end) {
    std::vector<double> products(count);
    for (int64_t row = begin; row < end; ++row) {
      Multiply(weight_, row, states, products);
      const double bias = bias_ ? kernels::LoadAsFloat(bias_->data, bias_->dtype, row) : 0;
      for (int64_t i = 0; i < count; ++i) values[i * rows() + row] = products[i] + bias;
    }
  });
  return values;
}

double StoredLinear::Product(int64_t a, int64_t b) const {
  float of_a[kBlock], of_b[kBlock];
  const int64_t width = weight_.shape[1];
  double sum = 0;
  for (int64_t first = 0; first < width; first += kBlock) {
    const int64_t count = std::min(kBlock, width - first);
    kernels::ConvertToFloat(weight_.data, weight_.dtype, a * width + first, count, of_a);
    kernels::ConvertToFloat(weight_.data, weight_.dtype, b * width + first, count, of_b);
    double state[kBlock];
    std::copy_n(of_b, count, state);
    kernels::AddStateProducts(ProfileOfProducts(), std::span(of_a, count), state, count, {&sum, 1});
  }
  return sum;
}

absl::StatusOr<Classifier> Classifier::Find(const ModelConfig& config,
                                            const ClassifierConfig& wanted,
                                            const Checkpoint& checkpoint,
                                            const SavedModules* saved) {
  Classifier classifier;
  const int64_t width = config.hidden_size;
  // Returns the place of a module, and notes its tensors if they are saved ones.
  const auto find = [&](const std::string& module, bool bias, bool* is_saved) {
    ModulePlace place = FindModule(config, module, checkpoint, saved);
    *is_saved = place.saved;
    if (place.saved) classifier.saved_tensors_.push_back(place.weight());
    if (place.saved && bias) classifier.saved_tensors_.push_back(place.bias());
    return place;
  };
  const auto linear = [&](const ModulePlace& place, bool bias, int64_t rows) {
    return StoredLinear::Find(place.checkpoint, place.weight(), bias ? place.bias() : "", rows,
                              width);
  };
  if (wanted.pooler) {
    const ModulePlace place =
        find(wanted.pooler_module, wanted.pooler_bias, &classifier.saved_pooler_);
    classifier.pooler_module_ = place.name;
    classifier.activation_ = wanted.activation;
    SLUICE_ASSIGN_OR_RETURN(classifier.pooler_, linear(place, wanted.pooler_bias, width));
  }
  if (!wanted.norm_module.empty()) {
    const ModulePlace place = find(wanted.norm_module, config.norm.bias, &classifier.saved_norm_);
    classifier.norm_eps_ = config.norm.eps;
    SLUICE_ASSIGN_OR_RETURN(classifier.norm_weight_,
                            FindFloats(place.checkpoint, place.weight(), width));
    if (config.norm.bias) {
      SLUICE_ASSIGN_OR_RETURN(classifier.norm_bias_,
                              FindFloats(place.checkpoint, place.bias(), width));
    }
  }
  const ModulePlace place = find(wanted.module, wanted.bias, &classifier.saved_classifier_);
  classifier.module_ = place.name;
  SLUICE_ASSIGN_OR_RETURN(classifier.classifier_, linear(place, wanted.bias, wanted.labels));
  return classifier;
}

int64_t Classifier::saved_bytes() const {
  int64_t bytes = 0;
  if (saved_pooler_) bytes += pooler_->bytes();
  if (saved_norm_) bytes += std::ssize(norm_weight_) * kSizeOf<float>;
  if (saved_norm_) bytes += std::ssize(norm_bias_) * kSizeOf<float>;
  if (saved_classifier_) bytes += classifier_->bytes();
  return bytes;
}

Classifier Classifier::WithCopies() const {
  Classifier copy = *this;
  if (saved_pooler_) copy.pooler_->CopyValues();
  if (saved_classifier_) copy.classifier_->CopyValues();
  return copy;
}

Classifier Classifier::OfLogits(const LogitScore& score, const ItemHead& head) {
  Classifier classifier;
  classifier.head_ = head;
  classifier.logits_ = score;
  return classifier;
}

std::vector<double> Classifier::Pooler(std::span<const double> pooled, Divide divide) const {
  return pooler_ ? pooler_->Times(pooled, divide) : std::vector<double>();
}

void Classifier::Score(std::span<const double> pooled, std::vector<double>* scores,
                       Divide divide) const {
  if (head_) {
    const double other = logits_.false_token < 0 ? 0 : head_->Score(logits_.false_token, pooled);
    *scores = {head_->Score(logits_.true_token, pooled) - other};
    return;
  }
  std::vector<double> state = Pooler(pooled, divide);
  for (double& value : state) value = Activate(activation_, value);
  if (!pooler_) state.assign(pooled.begin(), pooled.end());
  if (!norm_weight_.empty()) LayerNorm(norm_eps_, norm_weight_, norm_bias_, state);
  *scores = classifier_->Times(state, divide);
}

absl::StatusOr<ItemHead> ItemHead::Find(const ModelConfig& config, const HeadOp& op,
                                        const Checkpoint& checkpoint) {
  ItemHead head;
  SLUICE_ASSIGN_OR_RETURN(head.rows_, StoredLinear::Find(checkpoint, op.weight.name, op.bias.name,
                                                         config.vocab_size, config.hidden_size));
  head.scale_ = config.logit_scale;
  head.soft_cap_ = op.soft_cap;
  return head;
}

double ItemHead::Score(int32_t id, std::span<const double> state) const {
  const double logit = rows_->At(id, state, scale_);
  return soft_cap_ == 0 ? logit : soft_cap_ * std::tanh(logit / soft_cap_);
}

void Softmax(std::span<double> values) {
  LogSoftmax(values);
  for (double& value : values) value = std::exp(value);
}

void LogSoftmax(std::span<double> values) {
  const double log_sum = LogSum(values);
  if (!std::isfinite(log_sum)) return;
  for (double& value : values) value -= log_sum;
}

void Sigmoid(std::span<double> values) {
  for (double& value : values) value = 1 / (1 + std::exp(-value));
}

}  // namespace sluice
