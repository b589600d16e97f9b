// Reads a pair_frame.json and puts texts into its frame.
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_reader.h"
#include "engine/model/pair_frame.h"
#include "tests/fuzz/fuzz.h"

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  using sluice::PairFrame;
  const auto document = sluice::ParseJson(sluice::fuzz::AsText(data, size), 8);
  if (!document.ok() || !document->is_object()) return false;
  absl::Status status;
  sluice::ObjectReader root(*document, "", &status);
  const PairFrame frame = PairFrame::Read(root);
  if (!status.ok()) {
    sluice::fuzz::CheckRefusal(status);
    return false;
  }
  const auto size_of = [&](std::string_view instruction) {
    const std::string empty = frame.Text({.instruction = instruction, .query = "", .document = ""});
    const std::string whole =
        frame.Text({.instruction = instruction, .query = "\1", .document = "\2\2"});
    SLUICE_CHECK(whole.size() == empty.size() + 3 && whole.find("\2\2") != std::string::npos);
    return empty.size();
  };
  SLUICE_CHECK(size_of("") <= 32 * 16384);
  if (frame.takes_instruction()) SLUICE_CHECK(size_of("\3") >= 1);
  return true;
}
