// Texts that are read in windows, because they are longer than the model's longest sequence.
//
// Windows have the tokens of the template around them, and neighbours share some tokens of the
// text. The request has a row for each window; the answer has one for each text:
// - its scores are the means of its windows' scores;
// - each token has the scores of the window in which it is farther from an end: of the tokens that
//   two windows share, the first half is of the first one, and so is a middle one;
// - the tokens of the template are those of the first window and, behind the text, of the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"

namespace sluice {

struct TextWindows {
  std::vector<int32_t> counts = {};  // of each text, >= 1; empty if texts are not read in windows
  int32_t overlap = 0;               // the tokens that neighbours share
  int32_t before = 0, behind = 0;    // the template's tokens around each window
};

// Returns the tokens of each text with its template once, for windows of these lengths.
std::vector<int32_t> LengthsOfTexts(const TextWindows& windows,
                                    const std::vector<int32_t>& lengths);

// Returns the spec with a row for each text.
std::shared_ptr<const RequestSpec> SpecOfTexts(const TextWindows& windows, const RequestSpec& spec);

// Returns the scores of texts and of their tokens from those of their windows, whose lengths and
// classifier `spec` has.
Reply ReplyOfTexts(const TextWindows& windows, const RequestSpec& spec, const Reply& reply);

}  // namespace sluice
