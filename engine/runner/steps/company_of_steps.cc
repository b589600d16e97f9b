#include "engine/runner/steps/company_of_steps.h"

namespace sluice {
namespace {

// Calls `add` with the name of each request, which is nullptr if it has no id.
template <typename Add>
void ForEachRequest(std::span<RequestRow* const> rows, Add add) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i]->owner != rows[i - 1]->owner) add(rows[i]->owner->name);
  }
}

}  // namespace

bool CompanyOfSteps::IsLatest(std::span<RequestRow* const> rows) const {
  size_t named = 0;
  int32_t requests = 0;
  bool same = true;
  ForEachRequest(rows, [&](const std::shared_ptr<const RequestName>& name) {
    ++requests;
    if (name == nullptr || named == StepCompany::kMostNamed) return;
    same = same && named < latest_->named.size() && latest_->named[named] == name;
    ++named;
  });
  return same && named == latest_->named.size() && requests == latest_->requests;
}

std::shared_ptr<const StepCompany> CompanyOfSteps::Of(std::span<RequestRow* const> rows) {
  if (IsLatest(rows)) return latest_;
  const auto company = std::make_shared<StepCompany>();
  ForEachRequest(rows, [&](const std::shared_ptr<const RequestName>& name) {
    ++company->requests;
    if (name != nullptr && company->named.size() < StepCompany::kMostNamed) {
      company->named.push_back(name);
    }
  });
  latest_ = company;
  return latest_;
}

}  // namespace sluice
