// The specs of the engine's options; see base/option_spec.h.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/option_spec.h"
#include "engine/device_options.h"
#include "engine/ladder_choice.h"
#include "engine/options.h"

namespace sluice {

template <>
const std::vector<OptionSpec<ReviewOptions>>& OptionSpecs<ReviewOptions>();
template <>
const std::vector<OptionSpec<LadderOptions>>& OptionSpecs<LadderOptions>();
template <>
const std::vector<OptionSpec<BatchOptions>>& OptionSpecs<BatchOptions>();
template <>
const std::vector<OptionSpec<QueueOptions>>& OptionSpecs<QueueOptions>();
template <>
const std::vector<OptionSpec<WatchdogOptions>>& OptionSpecs<WatchdogOptions>();
template <>
const std::vector<OptionSpec<KvOptions>>& OptionSpecs<KvOptions>();
template <>
const std::vector<OptionSpec<HistoryOptions>>& OptionSpecs<HistoryOptions>();
template <>
const std::vector<OptionSpec<AttentionOptions>>& OptionSpecs<AttentionOptions>();
template <>
const std::vector<OptionSpec<EngineOptions>>& OptionSpecs<EngineOptions>();
template <>
const std::vector<OptionSpec<CpuOptions>>& OptionSpecs<CpuOptions>();
template <>
const std::vector<OptionSpec<CudaOptions>>& OptionSpecs<CudaOptions>();

// A kind of option value, a choice of ladder: "strategy=geometric ratio=2", separated by spaces.
struct LadderChoiceValue {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, LadderChoice* value) const;
  std::string Format(const LadderChoice& value) const;
};

// A kind of option value: "auto", "cpu" or "cuda:N"; "cuda" is cuda:0.
struct DeviceName {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, DeviceChoice* value) const;
  std::string Format(const DeviceChoice& value) const;
};

// A kind of option value: the name of an AttentionVariant.
struct AttentionVariantWord {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, AttentionVariant* value) const;
  std::string Format(const AttentionVariant& value) const;
};

}  // namespace sluice
