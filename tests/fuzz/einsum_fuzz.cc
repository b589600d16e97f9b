// Parses a cascade, an einsum string and a list of sizes, and lowers a term that is built from the
// input bytes.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cascades/einsum/analysis.h"
#include "cascades/einsum/einsum_string.h"
#include "cascades/einsum/interpreter.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/term_pool.h"
#include "cascades/einsum/text.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::einsum {
namespace {

// Checks that the cascade is valid and that printing and parsing it changes nothing.
void CheckCascade(const Cascade& cascade) {
  SLUICE_CHECK(Check(cascade).ok());
  for (const Notation notation : {Notation::kAscii, Notation::kUnicode}) {
    const auto again = Parse(Print(cascade, notation));
    SLUICE_CHECK(again.ok() && *again == cascade);
  }
}

Sizes SmallSizes(const Cascade& cascade) {
  Sizes sizes;
  for (const Rank& rank : cascade.ranks) {
    if (!rank.size.symbol.empty()) sizes[rank.size.symbol] = 3;
  }
  return sizes;
}

// Checks that every size is found and that the counts are valid.
void CheckAnalysis(const Cascade& cascade) {
  const auto analysis = Analyze(cascade, SmallSizes(cascade));
  if (!analysis.ok()) {
    fuzz::CheckRefusal(analysis.status());
    const std::string message(analysis.status().message());
    SLUICE_CHECK(cascade.ranks.empty() || message.find(" steps") != message.npos ||
                 message.find(" conditions") != message.npos);
    return;
  }
  SLUICE_CHECK(analysis->passes >= 0 && analysis->passes <= kMaxStatements);
  SLUICE_CHECK(analysis->work.flops >= 0 && analysis->footprint_bytes >= 0);
}

// Returns the number of places of the ranks, or a number above every limit.
int64_t PlacesOf(const Cascade& cascade, const Sizes& sizes,
                 const std::vector<std::string>& ranks) {
  constexpr int64_t kMany = int64_t{1} << 31;
  int64_t places = 1;
  for (const std::string& name : ranks) {
    const Rank& rank = *std::ranges::find(cascade.ranks, name, &Rank::name);
    places = std::min(kMany, places * (*SizeOf(rank, sizes) + 1));  // one more if it is carried
  }
  return places;
}

// Interprets the cascade if it is small, and checks that every result is complete.
void CheckValues(const Cascade& cascade) {
  constexpr int64_t kFewPlaces = 500;
  const Sizes sizes = SmallSizes(cascade);
  int64_t places = 0;
  for (const PlacedEinsum& each : AllEinsums(cascade)) {
    places += PlacesOf(cascade, sizes, RanksOf(*each.einsum));
  }
  NamedValues inputs;
  for (const Tensor& tensor : AllTensors(cascade)) {
    const int64_t own = PlacesOf(cascade, sizes, tensor.ranks);
    places += own;
    if (places > kFewPlaces) return;
    Values& values = inputs[tensor.name];
    int64_t volume = 1;
    for (const std::string& name : tensor.ranks) {
      values.shape.push_back(*SizeOf(*std::ranges::find(cascade.ranks, name, &Rank::name), sizes));
      volume *= values.shape.back();
    }
    for (int64_t i = 0; i < volume; ++i) values.values.push_back(static_cast<double>(i % 5) - 1.5);
  }
  const auto results = Interpret(cascade, sizes, inputs);
  SLUICE_CHECK(results.ok());
  for (const PlacedEinsum& each : AllEinsums(cascade)) {
    const Values& values = results->at(each.einsum->out.tensor);
    int64_t volume = 1;
    for (const int64_t size : values.shape) volume *= size;
    SLUICE_CHECK(volume == std::ssize(values.values));
  }
}

// Builds a term: each byte pushes a term that is made from terms on the stack.
class TermBuilder {
 public:
  TermBuilder() {
    for (const char* rank : kRanks) pool_.DeclareRank({rank, {std::string("size_") + rank}});
  }

  TermPool& pool() { return pool_; }

  TermId Build(std::string_view bytes) {
    constexpr size_t kMostNodes = 16;
    stack_ = {Input(0)};
    for (const char byte : bytes.substr(0, kMostNodes)) {
      Push(static_cast<uint8_t>(byte) % 8, static_cast<uint8_t>(byte) / 8);
    }
    return stack_.back();
  }

 private:
  static constexpr std::array<const char*, 3> kRanks = {"i", "k", "m"};

  TermId Input(unsigned ranks) {
    Tensor tensor{.name = "I" + std::to_string(ranks % 8), .ranks = {}};
    for (size_t i = 0; i < kRanks.size(); ++i) {
      if ((ranks >> i & 1) != 0) tensor.ranks.emplace_back(kRanks[i]);
    }
    return pool_.Input(tensor);
  }

  void Push(unsigned kind, unsigned detail) {
    const TermId a = stack_.back();
    const TermId b = stack_[detail % stack_.size()];
    const std::string rank = kRanks[detail % kRanks.size()];
    const bool has_rank = pool_.HasRank(a, rank);
    switch (kind) {
      case 0:
      case 1:
        stack_.push_back(Input(detail));
        return;
      case 2:
        stack_.push_back(pool_.Unary(static_cast<Function>(detail % 11), a));
        return;
      case 3:
      case 4:
        stack_.push_back(pool_.Map(static_cast<Op>(detail % 6), a, b));
        return;
      case 5:
        if (has_rank)
          stack_.push_back(pool_.Reduce(detail % 2 == 0 ? Op::kAdd : Op::kMax, rank, a));
        return;
      case 6:
        if (has_rank) stack_.push_back(pool_.Fold(rank, a, b));
        return;
      default:
        if (has_rank) stack_.push_back(pool_.Merge(rank, a, b));
        return;
    }
  }

  TermPool pool_;
  std::vector<TermId> stack_;
};

void CheckLowering(std::string_view bytes) {
  TermBuilder builder;
  const TermId term = builder.Build(bytes);
  const Cascade cascade = Lower(builder.pool(), {{"Z", term}}, "lowered");
  CheckCascade(cascade);
  CheckValues(cascade);
}

}  // namespace
}  // namespace sluice::einsum

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  bool accepted = false;
  for (const auto& cascade :
       {sluice::einsum::Parse(text), sluice::einsum::ParseEinsumString(text)}) {
    accepted |= cascade.ok();
    if (cascade.ok()) {
      sluice::einsum::CheckCascade(*cascade);
      sluice::einsum::CheckAnalysis(*cascade);
      sluice::einsum::CheckValues(*cascade);
    } else {
      sluice::fuzz::CheckRefusal(cascade.status());
    }
  }
  const auto sizes = sluice::einsum::ParseSizes(text);
  if (!sizes.ok()) sluice::fuzz::CheckRefusal(sizes.status());
  sluice::einsum::CheckLowering(text);
  return accepted || sizes.ok();
}
