#include "engine/journal/schedule_json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 20;
constexpr int64_t kMaxSequences = 1 << 16;
constexpr size_t kMaxBuckets = 4096;
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxBucketLayers = 16;

// Returns `count` finite numbers that are not negative.
std::vector<double> Numbers(const json& object, const std::string& key, size_t count,
                            absl::Status* status) {
  std::vector<double> numbers(count);
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array() || it->size() != count) {
    status->Update(
        absl::InvalidArgumentError(absl::StrCat(key, " is not a list of ", count, " numbers")));
    return numbers;
  }
  for (size_t i = 0; i < count; ++i) {
    const json& number = (*it)[i];
    if (number.is_number()) numbers[i] = number.get<double>();
    if (!number.is_number() || !std::isfinite(numbers[i]) || numbers[i] < 0) {
      status->Update(absl::InvalidArgumentError(
          absl::StrCat(key, "[", i, "] is not a finite number of 0 or more")));
    }
  }
  return numbers;
}

std::vector<Bucket> ReadBuckets(const json& object, absl::Status* status) {
  ObjectReader reader(object, "", status);
  const auto tokens = reader.Integers("tokens", 1, kMaxTokens);
  const auto sequences = reader.Integers("sequences", 1, kMaxSequences);
  const auto positions = reader.Integers("positions", 0, kMaxTokens);
  if (tokens.size() > kMaxBuckets || sequences.size() != tokens.size() ||
      positions.size() != tokens.size()) {
    reader.Fail("tokens",
                absl::StrCat("must have the same length as sequences and positions, at most ",
                             kMaxBuckets));
    return {};
  }
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < tokens.size(); ++i) {
    buckets.push_back({.tokens = static_cast<int32_t>(tokens[i]),
                       .sequences = static_cast<int32_t>(sequences[i]),
                       .positions = static_cast<int32_t>(positions[i])});
    const int64_t rectangle = sequences[i] * positions[i];
    if (positions[i] > 0 && rectangle != tokens[i]) {
      reader.Fail("tokens", absl::StrCat("has ", tokens[i], " for ", rectangle, " of a rectangle"));
    }
  }
  return buckets;
}

json Rows(const double (&matrix)[kCostTerms][kCostTerms]) {
  json all = json::array();
  for (const auto& row : matrix) {
    for (double value : row) all.push_back(value);
  }
  return all;
}

// Returns the key of an option. The key ends in "_us" if the value is a number of microseconds.
std::string KeyOf(const OptionSpec<BatchOptions>& spec) {
  const bool duration = spec.integer.has_value() && spec.integer->unit == Unit::kMicroseconds;
  return absl::StrCat(spec.path, duration ? "_us" : "");
}

// Returns the option's value in the object. A missing number is an error; a missing switch or word
// has the value in `defaults`. After an error, which is reported to the reader, returns any value
// within the option's range.
OptionValue ReadOption(const OptionSpec<BatchOptions>& spec, const BatchOptions& defaults,
                       ObjectReader* reader) {
  if (spec.integer.has_value()) {
    return reader->Integer(KeyOf(spec), spec.integer->min, spec.integer->max);
  }
  if (spec.real.has_value()) return reader->Number(spec.path, spec.real->min, spec.real->max);
  OptionValue value = spec.get(defaults);
  if (bool* const on = std::get_if<bool>(&value)) {
    *on = reader->Boolean(spec.path, *on);
  } else if (reader->Has(spec.path)) {
    const std::vector<std::string_view> words(spec.words.begin(), spec.words.end());
    value = spec.words[reader->Choice(spec.path, words)];
  }
  return value;
}

json RowsToJson(const ComputedRows& rows) {
  json object = {{"share", json::array()}, {"slice", json::array()}, {"least", json::array()}};
  for (const ComputedRows::BucketLayers& layers : rows.layers()) {
    object["share"].push_back(layers.share);
    object["slice"].push_back(layers.slice);
    object["least"].push_back(layers.least);
  }
  return object;
}

// Files of earlier versions have no "rows"; their laws count the tokens of the bucket.
absl::StatusOr<ComputedRows> RowsFromJson(const json& costs) {
  const auto object = costs.find("rows");
  if (object == costs.end()) return ComputedRows::OfBucket();
  if (!object->is_object()) return absl::InvalidArgumentError("rows is not an object");
  absl::Status status;
  ObjectReader reader(*object, "rows.", &status);
  const std::vector<int64_t> slices = reader.Integers("slice", 0, kMaxDenseRows);
  const std::vector<int64_t> least = reader.Integers("least", 1, kMaxDenseRows);
  const auto list = object->find("share");
  if (list == object->end() || !list->is_array() || list->size() != slices.size() ||
      least.size() != slices.size() || slices.size() > kMaxBucketLayers) {
    reader.Fail("share", absl::StrCat("must have the same length as slice and least, at most ",
                                      kMaxBucketLayers));
  }
  SLUICE_RETURN_IF_ERROR(status);
  const std::vector<double> shares = Numbers(*object, "share", slices.size(), &status);
  SLUICE_RETURN_IF_ERROR(status);
  std::vector<ComputedRows::BucketLayers> layers;
  double total = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto slice = static_cast<uint32_t>(slices[i]);
    total += shares[i];
    if (!(shares[i] > 0) || total > 1 + 1e-9) {
      reader.Fail("share", "must be above 0, with a sum of at most 1");
    }
    if (slice > 0 && (!std::has_single_bit(slice) || least[i] > slices[i])) {
      reader.Fail("slice", "must be 0, or a power of two that is not below least");
    }
    layers.push_back({.share = shares[i],
                      .slice = static_cast<int32_t>(slices[i]),
                      .least = static_cast<int32_t>(least[i])});
  }
  SLUICE_RETURN_IF_ERROR(status);
  return ComputedRows::OfLayers(std::move(layers));
}

// Only models with experts have them.
absl::StatusOr<ExpertCounts> ExpertsFromJson(const json& costs) {
  constexpr int64_t kMostExperts = 1 << 20;
  const auto object = costs.find("experts");
  if (object == costs.end()) return ExpertCounts();
  if (!object->is_object()) return absl::InvalidArgumentError("experts is not an object");
  absl::Status status;
  ObjectReader reader(*object, "experts.", &status);
  ExpertCounts counts = {.experts = reader.Integer("count", 1, kMostExperts)};
  counts.chosen = reader.Integer("chosen", 1, counts.experts);
  SLUICE_RETURN_IF_ERROR(status);
  return counts;
}

}  // namespace

json BucketsToJson(std::span<const Bucket> buckets) {
  json object = {
      {"tokens", json::array()}, {"sequences", json::array()}, {"positions", json::array()}};
  for (const Bucket& bucket : buckets) {
    object["tokens"].push_back(bucket.tokens);
    object["sequences"].push_back(bucket.sequences);
    object["positions"].push_back(bucket.positions);
  }
  return object;
}

absl::StatusOr<Ladder> LadderFromJson(const json& object) {
  absl::Status status;
  std::vector<Bucket> buckets = ReadBuckets(object, &status);
  if (status.ok() && buckets.empty()) status = absl::InvalidArgumentError("a ladder is empty");
  SLUICE_RETURN_IF_ERROR(status);
  if (const std::optional<size_t> misplaced = FirstOutOfOrder(buckets)) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", *misplaced, " does not ascend"));
  }
  return Ladder(std::move(buckets));
}

json CostsToJson(const CostState& costs) {
  std::vector<Bucket> buckets;
  json correction = json::array(), weight = json::array(), seconds = json::array();
  for (const BucketCost& cost : costs.buckets) {
    buckets.push_back(cost.bucket);
    correction.push_back(cost.correction);
    weight.push_back(cost.weight);
    seconds.push_back(cost.mean_seconds);
  }
  json object = {{"rows", RowsToJson(costs.rows)},
                 {"law", costs.law},
                 {"moments", Rows(costs.moments)},
                 {"products", costs.products},
                 {"totals", costs.totals},
                 {"buckets", BucketsToJson(buckets)},
                 {"correction", std::move(correction)},
                 {"weight", std::move(weight)},
                 {"seconds", std::move(seconds)}};
  if (costs.experts.experts > 0) {
    object["experts"] = {{"count", costs.experts.experts}, {"chosen", costs.experts.chosen}};
  }
  return object;
}

absl::StatusOr<CostState> CostsFromJson(const json& object) {
  // Files of earlier versions lack the last term.
  const auto law_at = object.find("law");
  const bool earlier = law_at != object.end() && law_at->size() == kCostTerms - 1;
  const size_t terms = earlier ? kCostTerms - 1 : kCostTerms;
  absl::Status status;
  const auto buckets_at = object.find("buckets");
  if (buckets_at == object.end() || !buckets_at->is_object()) {
    return absl::InvalidArgumentError("buckets is missing");
  }
  const std::vector<Bucket> buckets = ReadBuckets(*buckets_at, &status);
  const std::vector<double> law = Numbers(object, "law", terms, &status);
  const std::vector<double> moments = Numbers(object, "moments", terms * terms, &status);
  const std::vector<double> products = Numbers(object, "products", terms, &status);
  const std::vector<double> totals = Numbers(object, "totals", terms, &status);
  const std::vector<double> correction = Numbers(object, "correction", buckets.size(), &status);
  const std::vector<double> weight = Numbers(object, "weight", buckets.size(), &status);
  const std::vector<double> seconds = Numbers(object, "seconds", buckets.size(), &status);
  SLUICE_RETURN_IF_ERROR(status);
  CostState costs;
  SLUICE_ASSIGN_OR_RETURN(costs.rows, RowsFromJson(object));
  SLUICE_ASSIGN_OR_RETURN(costs.experts, ExpertsFromJson(object));
  std::copy(law.begin(), law.end(), costs.law);
  std::copy(products.begin(), products.end(), costs.products);
  std::copy(totals.begin(), totals.end(), costs.totals);
  for (size_t i = 0; i < moments.size(); ++i) {
    costs.moments[i / terms][i % terms] = moments[i];
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    costs.buckets.push_back({.bucket = buckets[i],
                             .correction = correction[i],
                             .weight = weight[i],
                             .mean_seconds = seconds[i]});
  }
  return costs;
}

json BatchOptionsToJson(const BatchOptions& options) {
  json object;
  for (const OptionSpec<BatchOptions>& spec : OptionSpecs<BatchOptions>()) {
    std::visit([&](const auto& value) { object[KeyOf(spec)] = value; }, spec.get(options));
  }
  return object;
}

absl::StatusOr<BatchOptions> BatchOptionsFromJson(const json& object) {
  absl::Status status;
  ObjectReader reader(object, "batch.", &status);
  BatchOptions options;
  for (const OptionSpec<BatchOptions>& spec : OptionSpecs<BatchOptions>()) {
    if (!spec.set(ReadOption(spec, options, &reader), &options)) {
      reader.Fail(spec.path, absl::StrCat("is not ", spec.expected));
    }
  }
  SLUICE_RETURN_IF_ERROR(status);
  return options;
}

absl::StatusOr<std::string> StringFromJson(const json& object, const std::string& key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is not a string"));
  }
  const auto& text = it->get_ref<const std::string&>();
  if (text.size() > kMaxText) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is longer than ", kMaxText, " bytes"));
  }
  return text;
}

}  // namespace sluice
