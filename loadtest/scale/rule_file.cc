#include "loadtest/scale/rule_file.h"

#include <stdexcept>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "yaml-cpp/yaml.h"

namespace sluice::loadtest {
namespace {

// Throws the problem, which ReadScalingRule catches, as yaml-cpp does with its own errors.
[[noreturn]] void Refuse(const std::string& problem) { throw std::runtime_error(problem); }

YAML::Node Field(const YAML::Node& node, const char* name) {
  const YAML::Node field = node[name];
  if (!field) Refuse(absl::StrCat("has no ", name));
  return field;
}

// Parses a quantity such as "500m", "0.5" or "70".
double Quantity(const std::string& text) {
  absl::string_view number = text;
  const double unit = absl::ConsumeSuffix(&number, "m") ? 1e-3 : 1;
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value > 0 && value < 1e9)) {
    Refuse(absl::StrCat("target ", text, " is not a quantity above 0"));
  }
  return value * unit;
}

// Returns the window of the last range selector of a query, such as "[1m]".
double WindowOf(const std::string& query) {
  const size_t begin = query.rfind('['), end = query.rfind(']');
  double value = 0;
  if (begin == std::string::npos || end == std::string::npos || end < begin + 3 ||
      !absl::SimpleAtod(query.substr(begin + 1, end - begin - 2), &value) || !(value > 0)) {
    Refuse(absl::StrCat("the query has no range such as [1m]: ", query));
  }
  if (query[end - 1] == 's') return value;
  if (query[end - 1] == 'm') return 60 * value;
  Refuse(absl::StrCat("the query's range must be in s or m: ", query));
}

Signal SignalOf(const std::string& query) {
  if (absl::StrContains(query, "sluice_estimated_drain_seconds")) return Signal::kDrain;
  if (absl::StrContains(query, "sluice_stage_duration_seconds_sum")) return Signal::kBusy;
  Refuse(absl::StrCat("the query uses no signal that can be simulated: ", query));
}

ScalingDirection DirectionOf(const YAML::Node& node) {
  ScalingDirection direction{.stabilization_seconds =
                                 Field(node, "stabilizationWindowSeconds").as<double>()};
  for (const YAML::Node& policy : Field(node, "policies")) {
    const auto type = Field(policy, "type").as<std::string>();
    if (type != "Percent" && type != "Pods") {
      Refuse(absl::StrCat("unknown policy type ", type, "; expected Percent or Pods"));
    }
    direction.policies.push_back({.percent = type == "Percent",
                                  .value = Field(policy, "value").as<double>(),
                                  .period_seconds = Field(policy, "periodSeconds").as<double>()});
  }
  return direction;
}

void SetBehavior(const YAML::Node& behavior, AutoscalerRule* rule) {
  rule->up = DirectionOf(Field(behavior, "scaleUp"));
  rule->down = DirectionOf(Field(behavior, "scaleDown"));
}

AutoscalerRule OfScaledObject(const YAML::Node& spec) {
  AutoscalerRule rule{.min_replicas = Field(spec, "minReplicaCount").as<int>(),
                      .max_replicas = Field(spec, "maxReplicaCount").as<int>()};
  SetBehavior(Field(Field(Field(spec, "advanced"), "horizontalPodAutoscalerConfig"), "behavior"),
              &rule);
  for (const YAML::Node& trigger : Field(spec, "triggers")) {
    const YAML::Node metadata = Field(trigger, "metadata");
    const auto query = Field(metadata, "query").as<std::string>();
    rule.targets.push_back({.signal = SignalOf(query),
                            .per_replica = Quantity(Field(metadata, "threshold").as<std::string>()),
                            .window_seconds = WindowOf(query)});
  }
  return rule;
}

// Returns the adapter's rule for the metric with this name.
YAML::Node AdapterRule(const YAML::Node& adapter, const std::string& name) {
  for (const YAML::Node& rule : Field(Field(adapter, "rules"), "custom")) {
    if (Field(Field(rule, "name"), "as").as<std::string>() == name) return rule;
  }
  Refuse(absl::StrCat("the rules of prometheus-adapter have none for ", name));
}

AutoscalerRule OfHpa(const YAML::Node& spec, const YAML::Node& adapter) {
  AutoscalerRule rule{.min_replicas = Field(spec, "minReplicas").as<int>(),
                      .max_replicas = Field(spec, "maxReplicas").as<int>()};
  SetBehavior(Field(spec, "behavior"), &rule);
  for (const YAML::Node& metric : Field(spec, "metrics")) {
    const YAML::Node pods = Field(metric, "pods");
    const YAML::Node source =
        AdapterRule(adapter, Field(Field(pods, "metric"), "name").as<std::string>());
    const auto average = Field(Field(pods, "target"), "averageValue").as<std::string>();
    rule.targets.push_back(
        {.signal = SignalOf(Field(source, "seriesQuery").as<std::string>()),
         .per_replica = Quantity(average),
         .window_seconds = WindowOf(Field(source, "metricsQuery").as<std::string>())});
  }
  return rule;
}

AutoscalerRule Read(const std::string& manifest, const std::string& adapter) {
  const YAML::Node root = YAML::LoadFile(manifest);
  const auto kind = Field(root, "kind").as<std::string>();
  const YAML::Node spec = Field(root, "spec");
  if (kind != "ScaledObject" && kind != "HorizontalPodAutoscaler") {
    Refuse(absl::StrCat("is a ", kind));
  }
  AutoscalerRule rule =
      kind == "ScaledObject" ? OfScaledObject(spec) : OfHpa(spec, YAML::LoadFile(adapter));
  if (rule.min_replicas < 1 || rule.max_replicas < rule.min_replicas || rule.targets.empty()) {
    Refuse("has no replicas or no targets");
  }
  return rule;
}

}  // namespace

absl::StatusOr<AutoscalerRule> ReadScalingRule(const std::string& manifest,
                                               const std::string& adapter) {
  try {
    return Read(manifest, adapter);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(manifest, ": ", error.what()));
  }
}

}  // namespace sluice::loadtest
