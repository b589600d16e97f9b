// The layers of the emulator's simulated library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/emulator/simt_device.h"

namespace sluice::simt {

// Returns whether the library has algorithms for the shape. Rows of bfloat16 must be multiples of
// 16 bytes; a vocabulary of 50,257 does not satisfy this. In int8 both widths must be multiples of
// 4, and the layer must be a plain product.
bool DenseSupports(const DenseShape& shape);
// Returns the library's error for arguments that it refuses: no workspace, pointers that are not
// aligned, a number of rows outside `rows` or that TriedRows never returns, an output that overlaps
// the input.
absl::Status CheckDense(const DenseShape& shape, SimtDense kind, const RowClass& rows,
                        const DenseArgs& args);
size_t DenseWorkspaceBytes(const DenseShape& shape, SimtDense kind);
size_t DenseOutBytes(const DenseShape& shape, int32_t rows);
// Returns the number of multiply-adds that it computed.
int64_t ComputeDense(const DenseShape& shape, SimtDense kind, const DenseArgs& args);

}  // namespace sluice::simt
