// Texts that are longer than the model's longest sequence and are read in windows.
//
// Each window has the template's tokens around it, and neighbours share some tokens of the text.
// The request has a row for each window; the answer has a row for each text:
// - The scores of a text are the means of its windows' scores.
// - A token has the scores of the window where it is farther from an end. Of the tokens that two
//   neighbours share, the first half, including a middle one, has the scores of the first window.
// - The template's tokens before the text come from the first window, and the ones after it from
//   the last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"

namespace sluice {

struct TextWindows {
  // The windows of each text, >= 1. Empty if texts are not read in windows.
  std::vector<int32_t> counts = {};
  int32_t overlap = 0;             // the tokens that neighbours share
  int32_t before = 0, behind = 0;  // the template's tokens around each window
};

// Returns the number of tokens of each text, counting its template once, for windows of these
// lengths.
std::vector<int32_t> LengthsOfTexts(const TextWindows& windows,
                                    const std::vector<int32_t>& lengths);

// Returns the spec with a row for each text.
std::shared_ptr<const RequestSpec> SpecOfTexts(const TextWindows& windows, const RequestSpec& spec);

// Returns the scores of texts and their tokens, computed from the scores of their windows. `spec`
// has the lengths of the windows and the classifier.
Reply ReplyOfTexts(const TextWindows& windows, const RequestSpec& spec, const Reply& reply);

}  // namespace sluice
