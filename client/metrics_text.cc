#include "client/metrics_text.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/http_get.h"

namespace sluice::client {
namespace {

// Removes a name from the front of `text` and returns it. Returns the empty string if `text` does
// not start with a name.
std::string TakeName(absl::string_view* text) {
  const auto end = std::find_if_not(text->begin(), text->end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == ':';
  });
  const size_t length = end - text->begin();
  std::string name(text->substr(0, length));
  text->remove_prefix(length);
  return name;
}

// Removes a quoted value with its escapes from the front and returns it.
std::optional<std::string> TakeQuoted(absl::string_view* text) {
  if (!absl::ConsumePrefix(text, "\"")) return std::nullopt;
  std::string value;
  while (!text->empty()) {
    char c = text->front();
    text->remove_prefix(1);
    if (c == '"') return value;
    if (c == '\\') {
      if (text->empty()) return std::nullopt;
      c = text->front() == 'n' ? '\n' : text->front();
      text->remove_prefix(1);
    }
    value.push_back(c);
  }
  return std::nullopt;
}

bool TakeLabels(absl::string_view* text, std::map<std::string, std::string>* labels) {
  if (!absl::ConsumePrefix(text, "{")) return true;
  while (!absl::ConsumePrefix(text, "}")) {
    const std::string name = TakeName(text);
    if (name.empty() || !absl::ConsumePrefix(text, "=")) return false;
    std::optional<std::string> value = TakeQuoted(text);
    if (!value.has_value()) return false;
    (*labels)[name] = *std::move(value);
    absl::ConsumePrefix(text, ",");
  }
  return true;
}

std::optional<Sample> ParseSample(absl::string_view line) {
  Sample sample;
  sample.name = TakeName(&line);
  if (sample.name.empty() || !TakeLabels(&line, &sample.labels)) return std::nullopt;
  line = absl::StripAsciiWhitespace(line);
  line = line.substr(0, line.find(' '));  // a time stamp may follow
  if (!absl::SimpleAtod(line, &sample.value)) return std::nullopt;
  return sample;
}

}  // namespace

absl::StatusOr<std::vector<Sample>> ParseMetrics(absl::string_view text) {
  std::vector<Sample> samples;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    std::optional<Sample> sample = ParseSample(line);
    if (!sample.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of the metrics is not a valid sample"));
    }
    samples.push_back(*std::move(sample));
  }
  return samples;
}

absl::StatusOr<std::vector<Sample>> FetchMetrics(const std::string& address) {
  SLUICE_ASSIGN_OR_RETURN(const std::string page, HttpGet(address, "/metrics", absl::Seconds(5)));
  return ParseMetrics(page);
}

double SumOf(const std::vector<Sample>& samples, absl::string_view name,
             const std::map<std::string, std::string>& labels) {
  double sum = 0;
  for (const Sample& sample : samples) {
    if (sample.name != name) continue;
    const bool matches = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
      const auto found = sample.labels.find(label.first);
      return found != sample.labels.end() && found->second == label.second;
    });
    if (matches) sum += sample.value;
  }
  return sum;
}

}  // namespace sluice::client
