#include "loadtest/load/lengths.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "base/status_macros.h"

namespace sluice::load {

const char kLengthsHelp[] =
    "fixed:N, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA, zipf:EXPONENT, recommendation, file:CSV "
    "(columns tokens,count) or trace (column input_tokens)";

namespace {

constexpr double kMaxArgument = 1 << 24;

using Draw = std::function<double(std::mt19937_64&)>;

class DrawnLengths final : public Lengths {
 public:
  DrawnLengths(Draw draw, int32_t cap) : draw_(std::move(draw)), cap_(cap) {}

  int32_t Next(std::mt19937_64& random) override {
    const double drawn = std::round(draw_(random));
    return static_cast<int32_t>(std::clamp(drawn, 1.0, static_cast<double>(cap_)));
  }

 private:
  const Draw draw_;
  const int32_t cap_;
};

// Returns the value whose share of the weights contains a uniform random number.
Draw FromWeights(std::vector<int32_t> values, const std::vector<double>& weights) {
  return
      [values = std::move(values),
       choice = std::discrete_distribution<size_t>(weights.begin(), weights.end())](
          std::mt19937_64& random) mutable { return static_cast<double>(values[choice(random)]); };
}

Draw LogNormal(double median, double sigma) {
  return [normal = std::lognormal_distribution<double>(std::log(median), sigma)](
             std::mt19937_64& random) mutable { return normal(random); };
}

Draw Zipf(double exponent, int32_t cap) {
  std::vector<int32_t> values;
  std::vector<double> weights;
  values.reserve(cap);
  weights.reserve(cap);
  for (int32_t n = 1; n <= cap; ++n) {
    values.push_back(n);
    weights.push_back(std::pow(n, -exponent));
  }
  return FromWeights(std::move(values), weights);
}

absl::StatusOr<Draw> FromFile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<std::vector<LengthCount>> counts = ParseLengthCounts(text);
  if (!counts.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", counts.status().message()));
  }
  std::vector<int32_t> values;
  std::vector<double> weights;
  values.reserve(counts->size());
  weights.reserve(counts->size());
  for (const LengthCount& each : *counts) {
    values.push_back(each.tokens);
    weights.push_back(each.count);
  }
  return FromWeights(std::move(values), weights);
}

absl::Status Malformed(absl::string_view spec) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown lengths `", spec, "`; expected ", kLengthsHelp));
}

absl::StatusOr<Draw> ParseSpec(absl::string_view spec, int32_t cap) {
  const std::vector<absl::string_view> words = absl::StrSplit(spec, ':');
  std::vector<double> numbers;
  for (size_t i = 1; i < words.size(); ++i) {
    double number = 0;
    if (!absl::SimpleAtod(words[i], &number) || !(number > 0 && number <= kMaxArgument)) break;
    numbers.push_back(number);
  }
  const auto is = [&](absl::string_view name, size_t arguments) {
    return words[0] == name && words.size() == arguments + 1 && numbers.size() == arguments;
  };
  if (is("fixed", 1)) return Draw([n = numbers[0]](std::mt19937_64&) { return n; });
  if (is("uniform", 2) && numbers[0] >= 1 && numbers[0] <= numbers[1]) {
    return Draw([range = std::uniform_int_distribution<int32_t>(static_cast<int32_t>(numbers[0]),
                                                                static_cast<int32_t>(numbers[1]))](
                    std::mt19937_64& random) mutable { return range(random); });
  }
  if (is("lognormal", 2) && numbers[0] >= 1 && numbers[1] <= 10) {
    return LogNormal(numbers[0], numbers[1]);
  }
  if (is("zipf", 1) && numbers[0] <= 10) return Zipf(numbers[0], cap);
  if (is("recommendation", 0)) return LogNormal(60, 1.1);
  return Malformed(spec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lengths>> MakeLengths(absl::string_view spec, int32_t cap) {
  if (cap < 1 || cap > kMaxArgument) {
    return absl::InvalidArgumentError("the cap of the lengths must be from 1 to 2^24");
  }
  constexpr absl::string_view kFile = "file:";
  const bool from_file = spec.substr(0, kFile.size()) == kFile;
  SLUICE_ASSIGN_OR_RETURN(Draw draw, from_file ? FromFile(std::string(spec.substr(kFile.size())))
                                               : ParseSpec(spec, cap));
  return std::make_unique<DrawnLengths>(std::move(draw), cap);
}

}  // namespace sluice::load
