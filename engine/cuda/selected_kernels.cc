#include "engine/cuda/selected_kernels.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/cuda/attention_check.h"
#include "engine/cuda/product_check.h"

namespace sluice {
namespace {

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
    if (status.ok()) return (*chosen)[shape] = &candidate;
    if (OfTheDevice(status)) return status;
    std::string text = absl::StrCat("the ", candidate.tier, " kernel is not used for ",
                                    ToString(shape), ": ", status.message());
    refused = absl::FailedPreconditionError(
        refused.ok() ? text : absl::StrCat(refused.message(), "; ", text));
    notices_.push_back(std::move(text));
  }
  if (refused.ok()) return unsupported;
  return absl::FailedPreconditionError(
      absl::StrCat("no kernel passes its trial on ", device_.info().name, ": ", refused.message()));
}

template <typename T>
absl::StatusOr<const AttentionCandidate<T>*> SelectedKernels<T>::Attention(
    const AttentionShape& shape, const AttentionTensors& tensors) {
  return Choose(shape, candidates_.attention, AttentionCheck<T>(shape, tensors), &attention_);
}

template <typename T>
absl::StatusOr<const GroupedProductCandidate<T>*> SelectedKernels<T>::Product(
    const GroupedProductShape& shape, const T* weight, const T* bias) {
  return Choose(shape, candidates_.products, ProductCheck<T>(shape, weight, bias), &products_);
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
