#include "client/entities.h"

namespace sluice::client {

std::vector<Entity> EntitiesOf(std::span<const LabelledToken> tokens) {
  std::vector<Entity> entities;
  int64_t joined = 0;  // the tokens of the last entity; 0: the next token may not continue it
  for (const LabelledToken& token : tokens) {
    if (token.begin < 0) continue;
    const bool begins = token.label.starts_with("B-");
    const bool prefixed = begins || token.label.starts_with("I-");
    const std::string type = prefixed ? token.label.substr(2) : token.label;
    if (type == "O") {
      joined = 0;
    } else if (joined > 0 && entities.back().type == type &&
               (!begins || token.begin == entities.back().end)) {
      Entity& last = entities.back();
      last.end = token.end;
      last.score += (token.score - last.score) / static_cast<double>(++joined);
    } else {
      entities.push_back({type, token.score, token.begin, token.end});
      joined = 1;
    }
  }
  return entities;
}

}  // namespace sluice::client
