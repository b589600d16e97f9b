// A small HTTP client and a reader of the Prometheus text format.
#pragma once

#include <map>
#include <string>

namespace sluice::testing {

struct HttpAnswer {
  int status = 0;  // 0 without an answer
  std::string type;
  std::map<std::string, std::string> headers;
  std::string body;
};

HttpAnswer HttpCall(int port, const std::string& method, const std::string& path,
                    const std::string& host = "localhost");
inline HttpAnswer HttpGet(int port, const std::string& path) { return HttpCall(port, "GET", path); }

// Returns the samples by `name{label="value",...}`, with labels in alphabetical order. Fails the
// test on a line that is neither a comment nor a sample, and on a sample that appears twice.
std::map<std::string, double> ParseSamples(const std::string& text);

// Returns the sum of the samples of `name` whose labels contain `label`, for instance `code="OK"`.
double SumOf(const std::map<std::string, double>& samples, const std::string& name,
             const std::string& label = "");

}  // namespace sluice::testing
