// Parses a callers file.
#include "server/security/callers_file.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

void CheckRate(const std::optional<double>& rate) {
  SLUICE_CHECK(!rate.has_value() || (*rate >= 0 && *rate <= 1e9));
}

void CheckCallers(const CallersFile& file) {
  SLUICE_CHECK(file.callers.front().name == kAnonymous && file.callers.size() <= kMaxCallers);
  absl::flat_hash_map<std::string, int> names;
  for (const CallersFile::Entry& entry : file.callers) {
    SLUICE_CHECK(!entry.name.empty() && entry.name.size() <= 64 && ++names[entry.name] == 1);
    CheckRate(entry.rates.requests_per_second);
    CheckRate(entry.rates.requests_burst);
    CheckRate(entry.rates.tokens_per_second);
    CheckRate(entry.rates.tokens_burst);
  }
  // The anonymous caller has no credential.
  for (const auto& [digest, caller] : file.tokens) {
    SLUICE_CHECK(caller > 0 && caller < file.callers.size());
  }
  for (const auto& [name, caller] : file.certificates) {
    SLUICE_CHECK(!name.empty() && caller > 0 && caller < file.callers.size());
  }
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  const auto file = sluice::ParseCallers(absl::string_view(text.data(), text.size()), "f");
  if (file.ok()) {
    sluice::CheckCallers(*file);
  } else {
    sluice::fuzz::CheckRefusal(file.status());
  }
  return file.ok();
}
