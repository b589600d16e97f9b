// Reads a cascade's text, an einsum string and a list of sizes.
#include "engine/einsum/analysis.h"
#include "engine/einsum/einsum_string.h"
#include "engine/einsum/text.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::einsum {
namespace {

// Checks that the cascade has a meaning and is printed as it was read, in both notations.
void CheckCascade(const Cascade& cascade) {
  SLUICE_CHECK(Check(cascade).ok());
  for (const Notation notation : {Notation::kAscii, Notation::kUnicode}) {
    const auto again = Parse(Print(cascade, notation));
    SLUICE_CHECK(again.ok() && *again == cascade);
  }
}

// Checks that every size is found, and that the counts are numbers.
void CheckAnalysis(const Cascade& cascade) {
  Sizes sizes;
  for (const Rank& rank : cascade.ranks) {
    if (!rank.size.symbol.empty()) sizes[rank.size.symbol] = 3;
  }
  const auto analysis = Analyze(cascade, sizes);
  if (cascade.ranks.empty()) return;
  SLUICE_CHECK(analysis.ok());
  SLUICE_CHECK(analysis->passes >= 0 && analysis->passes <= kMaxStatements);
  SLUICE_CHECK(analysis->work.flops >= 0 && analysis->footprint_bytes >= 0);
}

}  // namespace
}  // namespace sluice::einsum

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  for (const auto& cascade :
       {sluice::einsum::Parse(text), sluice::einsum::ParseEinsumString(text)}) {
    if (cascade.ok()) {
      sluice::einsum::CheckCascade(*cascade);
      sluice::einsum::CheckAnalysis(*cascade);
    } else {
      sluice::fuzz::CheckRefusal(cascade.status());
    }
  }
  const auto sizes = sluice::einsum::ParseSizes(text);
  if (!sizes.ok()) sluice::fuzz::CheckRefusal(sizes.status());
  return 0;
}
