// Candidates with one fault each, made from correct candidates, for the tests of their trials.
#pragma once

#include <cstdint>

#include "base/enum_names.h"
#include "kernels/simt/stream.h"

namespace sluice::testing {

// The change that a kernel after a candidate makes to its rows.
enum class RowFault {
  kNone,
  kOtherOrderOfManyRows,  // last bits of each row, if there are many, as another order of sums
  kOtherOrderByPlace,     // last bits of every third place's row
  kWrongValue,            // the first value is larger by a quarter and 1
  kDropsNaN,              // values that are not finite become 0
  kSpreadsNaN,            // 0 times the row before is added to each row
  kNothing,               // no change: only another launch
};
constexpr auto EnumNamesOf(RowFault) {
  using enum RowFault;
  return EnumNameTable<RowFault>({{kNone, "none"},
                                  {kOtherOrderOfManyRows, "other_order_of_many_rows"},
                                  {kOtherOrderByPlace, "other_order_by_place"},
                                  {kWrongValue, "wrong_value"},
                                  {kDropsNaN, "drops_nan"},
                                  {kSpreadsNaN, "spreads_nan"},
                                  {kNothing, "nothing"}});
}

// Plants the fault in out [rows, width].
template <typename T>
void PlantRowFault(kernels::cuda::Stream& stream, RowFault fault, int32_t rows, int32_t width,
                   T* out);

}  // namespace sluice::testing
