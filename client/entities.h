// The entities of a text: the parts that a classifier of tokens names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::client {

// A token of a text, with its best label and the probability of that.
struct LabelledToken {
  std::string label;
  double score = 0;
  int32_t begin = -1, end = -1;  // the bytes that it stands for; negative if none
};

struct Entity {
  std::string type;  // the label of its tokens, without B- or I-
  double score = 0;  // their mean score
  int32_t begin = 0, end = 0;

  bool operator==(const Entity&) const = default;
};

// Joins the tokens that have a label other than O. Neighbours of one type are one entity, except
// that B- begins another one where it does not stand within a word. Tokens that stand for no bytes
// are left out.
std::vector<Entity> EntitiesOf(std::span<const LabelledToken> tokens);

}  // namespace sluice::client
