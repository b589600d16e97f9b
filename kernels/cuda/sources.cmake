# The CUDA kernels. nvcc and the emulator (tests/kernels/cuda) compile the same list, so the tests
# cover all of them.
set(SLUICE_CUDA_KERNELS
  activation.cu
  attention.cu
  copy_pages.cu
  diverse.cu
  embedding.cu
  exchange.cu
  gated_projection.cu
  int8.cu
  mix.cu
  logits.cu
  norm.cu
  pack.cu
  pool.cu
  projection.cu
  relative_attention.cu
  rope.cu
  route.cu
  same_rows.cu
  sample.cu
  score.cu
  xsa.cu)
list(TRANSFORM SLUICE_CUDA_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)

# Kernels with code for one architecture, sm_90a; on other GPUs they are never launched.
set(SLUICE_HOPPER_KERNELS
  hopper_attention.cu
  hopper_projection.cu)
list(TRANSFORM SLUICE_HOPPER_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)
