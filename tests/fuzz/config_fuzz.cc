// Parses a YAML configuration file.
#include "config/load.h"
#include "config/render.h"
#include "config/validate.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

// Checks that the configuration can be rendered as YAML and read back unchanged.
void CheckStable(const Config& config) {
  const std::string text = RenderEffectiveConfig(config, {});
  Config again;
  Origins origins;
  std::vector<std::string> old;
  const absl::Status status = LoadYaml(text, "/rendered.yaml", &again, &origins, &old);
  SLUICE_CHECK(status.ok());
  SLUICE_CHECK(RenderEffectiveConfig(again, {}) == text);
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  sluice::Config config;
  sluice::Origins origins;
  std::vector<std::string> old;
  const absl::Status status =
      sluice::LoadYaml({text.data(), text.size()}, "/fuzz.yaml", &config, &origins, &old);
  if (!status.ok()) {
    sluice::fuzz::CheckRefusal(status);
    return false;
  }
  sluice::CheckStable(config);
  // Options may contradict each other; validation must return in either case.
  const absl::Status valid = sluice::ValidateConfig(config, origins);
  if (!valid.ok()) sluice::fuzz::CheckRefusal(valid);
  return valid.ok();
}
