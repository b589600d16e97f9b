// What logit edits say of single tokens; the edits themselves are LogitEdits in kernels/cpu/sample.h.
#pragma once

#include <cstdint>

namespace sluice::kernels {

struct SeenToken {
  int32_t token;
  int32_t generated;  // times; 0: in the prompt only
};
struct TokenBias {
  int32_t token;
  float bias;  // finite or -inf
};

}  // namespace sluice::kernels
