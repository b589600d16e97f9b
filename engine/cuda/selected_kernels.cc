#include "engine/cuda/selected_kernels.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/cuda/attention_check.h"
#include "engine/cuda/product_check.h"

namespace sluice {
namespace {

// A later candidate serves instead of an earlier one only if it takes at most this part of its
// time, so that a repeated start rarely selects another one, which may have other bits.
constexpr double kClearlyFaster = 0.9;

bool OfTheDevice(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

template <typename Chosen>
void AppendTiers(const char* what, const Chosen& chosen, std::vector<std::string>* parts) {
  std::set<std::string> tiers;
  for (const auto& [shape, candidate] : chosen) tiers.insert(candidate->tier);
  if (!tiers.empty()) parts->push_back(absl::StrCat(what, " ", absl::StrJoin(tiers, ", ")));
}

}  // namespace

template <typename T>
template <typename Shape, typename Candidate, typename Check>
absl::StatusOr<const Candidate*> SelectedKernels<T>::Choose(
    const Shape& shape, const std::vector<Candidate>& candidates, Check check,
    std::map<Shape, const Candidate*>* chosen) {
  if (const auto found = chosen->find(shape); found != chosen->end()) return found->second;
  absl::Status refused, unsupported;
  std::vector<const Candidate*> passing;
  bool prepared = false;
  for (const Candidate& candidate : candidates) {
    absl::Status status = candidate.supports(device_.info(), shape);
    if (!status.ok()) {
      // If no candidate supports the shape, the portable candidate's error is returned.
      if (unsupported.ok() || candidate.tier == "portable") unsupported = status;
      continue;
    }
    if (!prepared) SLUICE_RETURN_IF_ERROR(check.Prepare(device_, stream_));
    prepared = true;
    status = check.Check(candidate, stream_);
    if (status.ok()) {
      passing.push_back(&candidate);
      continue;
    }
    if (OfTheDevice(status)) return status;
    std::string text = absl::StrCat("the ", candidate.tier, " kernel is not used for ",
                                    ToString(shape), ": ", status.message());
    refused = absl::FailedPreconditionError(
        refused.ok() ? text : absl::StrCat(refused.message(), "; ", text));
    notices_.push_back(std::move(text));
  }
  if (!passing.empty()) {
    SLUICE_ASSIGN_OR_RETURN((*chosen)[shape], Fastest(passing, check));
    return (*chosen)[shape];
  }
  if (refused.ok()) return unsupported;
  return absl::FailedPreconditionError(
      absl::StrCat("no kernel passes its trial on ", device_.info().name, ": ", refused.message()));
}

template <typename T>
template <typename Candidate, typename Check>
absl::StatusOr<const Candidate*> SelectedKernels<T>::Fastest(
    const std::vector<const Candidate*>& passing, Check& check) {
  const Candidate* fastest = passing.front();
  if (passing.size() == 1) return fastest;
  std::vector<double> scores;  // sums of the logarithms of seconds
  for (const Candidate* const candidate : passing) {
    double& score = scores.emplace_back(0);
    for (const int32_t rows : kTimedRows) {
      SLUICE_ASSIGN_OR_RETURN(const double seconds,
                              check.SecondsOf(*candidate, rows, device_, stream_));
      score += std::log(seconds);
    }
  }
  double least = scores.front();
  for (size_t i = 1; i < passing.size(); ++i) {
    if (scores[i] >= least + std::size(kTimedRows) * std::log(kClearlyFaster)) continue;
    least = scores[i];
    fastest = passing[i];
  }
  return fastest;
}

template <typename T>
absl::StatusOr<const AttentionCandidate<T>*> SelectedKernels<T>::Attention(
    const AttentionShape& shape, const AttentionTensors& tensors) {
  return Choose(shape, candidates_.attention, AttentionCheck<T>(shape, tensors), &attention_);
}

template <typename T>
absl::StatusOr<const GroupedProductCandidate<T>*> SelectedKernels<T>::Product(
    const GroupedProductShape& shape, const T* weight, const T* bias, const GateWeights<T>& gate) {
  return Choose(shape, candidates_.products, ProductCheck<T>(shape, weight, bias, gate),
                &products_);
}

template <typename T>
std::string SelectedKernels<T>::InUse() const {
  std::vector<std::string> parts;
  AppendTiers("attention", attention_, &parts);
  AppendTiers("products", products_, &parts);
  return absl::StrJoin(parts, "; ");
}

template <typename T>
std::string SelectedKernels<T>::Fingerprint() const {
  std::string text;
  for (const auto& [shape, candidate] : attention_) {
    absl::StrAppend(&text, ToString(shape), ": ", candidate->tier, "\n");
  }
  for (const auto& [shape, candidate] : products_) {
    absl::StrAppend(&text, ToString(shape), ": ", candidate->tier, "\n");
  }
  return text;
}

template class SelectedKernels<float>;
template class SelectedKernels<kernels::cuda::BFloat16>;

}  // namespace sluice
