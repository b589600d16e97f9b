#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/cuda/cuda_device.h"
#include "loadtest/gpu/open_device.h"

namespace sluice::gpu {
namespace {

std::string NameOf(const void* function) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, function) != cudaSuccess || mangled == nullptr) return "";
  int status = 0;
  char* const name = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string text = name == nullptr ? mangled : name;
  std::free(name);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice() { return MakeCudaDevice(0); }

absl::StatusOr<std::optional<KernelFacts>> FactsOf(const kernels::cuda::Kernel& kernel,
                                                   const kernels::cuda::LaunchShape& shape) {
  cudaFuncAttributes attributes{};
  int blocks = 0, threads = 0, device = 0;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 shape.shared_bytes);
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, shape.threads,
                                                          static_cast<size_t>(shape.shared_bytes));
  }
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  }
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(kernel.name, ": ", cudaGetErrorName(error)));
  }
  return KernelFacts{.function = NameOf(kernel.function),
                     .registers = attributes.numRegs,
                     .local_bytes = static_cast<int64_t>(attributes.localSizeBytes),
                     .static_shared_bytes = static_cast<int64_t>(attributes.sharedSizeBytes),
                     .blocks_per_processor = blocks,
                     .occupancy = static_cast<double>(blocks) * shape.threads / threads};
}

}  // namespace sluice::gpu
