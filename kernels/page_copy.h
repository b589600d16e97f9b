// The copy of the first positions of a KV page to another page.
#pragma once

#include <cstdint>

namespace sluice::kernels {

struct PageCopy {
  int32_t from, to;   // pages
  int32_t positions;  // less than a page has
};

}  // namespace sluice::kernels
