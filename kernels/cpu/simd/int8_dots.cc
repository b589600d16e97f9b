#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_int8_dots
#include "kernels/cpu/simd/gemm_int8_dots.h"

namespace sluice::kernels::simd {

constexpr Int8Table kInt8Dots = {
    .panel_cols = SLUICE_SIMD_NAMESPACE::Int8Dots::kPanelCols,
    .tile_rows = SLUICE_SIMD_NAMESPACE::kTileRows,
    .value_bytes = 1,
    .value_bytes_int4 = 1,
    .slack_rows = 0,
    .quantize_row = SLUICE_SIMD_NAMESPACE::QuantizeRow<uint8_t, kInt8Offset>,
    .gemm = SLUICE_SIMD_NAMESPACE::Gemm<SLUICE_SIMD_NAMESPACE::Int8Dots>,
    .quantize_row_int4 = SLUICE_SIMD_NAMESPACE::Int4Dots::Quantize,
    .gemm_int4 = SLUICE_SIMD_NAMESPACE::Int4Gemm<SLUICE_SIMD_NAMESPACE::Int4Dots>,
};

}  // namespace sluice::kernels::simd
