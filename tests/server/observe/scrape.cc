#include "tests/server/observe/scrape.h"

#include <civetweb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace sluice::testing {
namespace {

// The daemon's label values contain no commas.
std::string SortLabels(const std::string& series) {
  const size_t brace = series.find('{');
  if (brace == std::string::npos) return series;
  std::vector<std::string> labels =
      absl::StrSplit(series.substr(brace + 1, series.size() - brace - 2), ',');
  std::sort(labels.begin(), labels.end());
  return series.substr(0, brace) + "{" + absl::StrJoin(labels, ",") + "}";
}

}  // namespace

HttpAnswer HttpCall(int port, const std::string& method, const std::string& path,
                    const std::string& host) {
  char error[256] = "";
  mg_connection* connection = mg_download("127.0.0.1", port, 0, error, sizeof(error),
                                          "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                                          method.c_str(), path.c_str(), host.c_str());
  if (connection == nullptr) return {};
  HttpAnswer answer;
  const mg_response_info* info = mg_get_response_info(connection);
  answer.status = info->status_code;
  for (int i = 0; i < info->num_headers; ++i) {
    answer.headers[info->http_headers[i].name] = info->http_headers[i].value;
  }
  if (const char* type = mg_get_header(connection, "Content-Type")) answer.type = type;
  char buffer[4096];
  for (int n; (n = mg_read(connection, buffer, sizeof(buffer))) > 0;) answer.body.append(buffer, n);
  mg_close_connection(connection);
  return answer;
}

std::map<std::string, double> ParseSamples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == std::string::npos || !absl::SimpleAtod(line.substr(space + 1), &value)) {
      ADD_FAILURE() << "not a sample: " << line;
      continue;
    }
    const bool added = samples.emplace(SortLabels(line.substr(0, space)), value).second;
    EXPECT_TRUE(added) << "twice: " << line;
  }
  return samples;
}

double SumOf(const std::map<std::string, double>& samples, const std::string& name,
             const std::string& label) {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    const bool named = series == name || series.compare(0, name.size() + 1, name + "{") == 0;
    if (named && series.find(label) != std::string::npos) sum += value;
  }
  return sum;
}

}  // namespace sluice::testing
