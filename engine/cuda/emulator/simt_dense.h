// The layers of the emulator's pretended library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/dense_layer.h"
#include "engine/cuda/emulator/simt_device.h"

namespace sluice::simt {

size_t DenseWorkspaceBytes(const DenseShape& shape, SimtDense kind);
size_t DenseOutBytes(const DenseShape& shape, int32_t rows);
void ComputeDense(const DenseShape& shape, SimtDense kind, const DenseArgs& args);

}  // namespace sluice::simt
