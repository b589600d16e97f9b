// The entities of a text: the parts that a classifier of tokens names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::client {

// A token of a text, with its best label and that label's probability.
struct LabelledToken {
  std::string label;
  double score = 0;
  int32_t begin = -1, end = -1;  // its bytes in the text; negative if none
};

struct Entity {
  std::string type;  // the label of its tokens, without B- or I-
  double score = 0;  // their mean score
  int32_t begin = 0, end = 0;

  bool operator==(const Entity&) const = default;
};

// Joins the tokens that have a label other than O. Neighbours of one type form one entity, except
// that B- starts a new entity unless it is within a word. Leaves out tokens without bytes.
std::vector<Entity> EntitiesOf(std::span<const LabelledToken> tokens);

}  // namespace sluice::client
