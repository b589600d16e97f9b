// Parses JSON and compares the result with the parser of the library without the reader's checks.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 16;

// Finds keys that appear twice in one object, and the depth, by an independent reader of events.
class Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool key(string_t& name) override {
    repeats_ |= !keys_.back().insert(name).second;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

  bool repeats() const { return repeats_; }
  size_t deepest() const { return deepest_; }

 private:
  bool Open() {
    keys_.emplace_back();
    deepest_ = std::max(deepest_, keys_.size());
    return true;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;
  size_t deepest_ = 0;
  bool repeats_ = false;
};

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  using nlohmann::json;
  const std::string_view text = AsText(data, size);
  const absl::StatusOr<json> read = ParseJson(text, kMaxDepth);
  Events events;
  const bool valid = json::sax_parse(text, &events);
  const bool accepted = valid && !events.repeats() && events.deepest() <= kMaxDepth;
  SLUICE_CHECK(read.ok() == accepted);
  if (!read.ok()) {
    CheckRefusal(read.status());
    return false;
  }
  const absl::StatusOr<json> again = ParseJson(read->dump(), kMaxDepth);
  SLUICE_CHECK(again.ok() && *again == *read);
  return true;
}
