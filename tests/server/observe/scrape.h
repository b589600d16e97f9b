// A small HTTP client and a reader of the Prometheus text format.
#pragma once

#include <map>
#include <string>

namespace sluice::testing {

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string type;
  std::map<std::string, std::string> headers;
  std::string body;
};

HttpAnswer HttpCall(int port, const std::string& method, const std::string& path);
inline HttpAnswer HttpGet(int port, const std::string& path) { return HttpCall(port, "GET", path); }

// Samples by `name{label="value",...}`, labels in alphabetical order. Fails the test on a line that
// is neither comment nor sample, and on a sample that appears twice.
std::map<std::string, double> ParseSamples(const std::string& text);

// Sum of the samples of `name` whose labels contain `label`, e.g. `code="OK"`.
double SumOf(const std::map<std::string, double>& samples, const std::string& name,
             const std::string& label = "");

}  // namespace sluice::testing
