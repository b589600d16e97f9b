// Dense layers by cuBLASLt, which is loaded at run time: a binary serves hosts with and without it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/dense_layer.h"

namespace sluice {

// The library, for the device that was current when it was opened. Thread-safe.
class CublasLt {
 public:
  struct Algorithm {
    cublasLtMatmulAlgo_t opaque;
    size_t workspace_bytes;  // the most for any number of rows that it was returned for
  };
  struct Functions;  // of the library

  // Returns FailedPrecondition if the library version of this build cannot be loaded.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Open();
  ~CublasLt();

  const std::string& name() const { return name_; }  // "cublaslt130002"

  // Returns the heuristic's algorithms for the last number of rows of a class, the best first, if
  // they pass Check. The algorithms of the largest class are checked for all classes, others for
  // their class and one number of rows beyond each edge.
  std::vector<Algorithm> Algorithms(const DenseShape& shape, const RowClass& rows) const;
  // Returns a text such as "algorithm 66, tile 20, stages 15".
  std::string Describe(const cublasLtMatmulAlgo_t& opaque) const;

  // Returns Internal if the algorithm cannot compute this number of rows.
  absl::Status Run(const DenseShape& shape, const Algorithm& algorithm, const DenseArgs& args,
                   cudaStream_t stream) const;

 private:
  CublasLt(std::unique_ptr<const Functions> functions, cublasLtHandle_t handle);

  // Returns FailedPrecondition with the reason if the algorithm cannot be used: it splits sums,
  // needs too large a workspace, or does not exist in the library for this shape, device and one of
  // the tried numbers of `rows`.
  absl::StatusOr<Algorithm> Check(const DenseShape& shape, const RowClass& rows,
                                  const cublasLtMatmulAlgo_t& opaque) const;

  std::unique_ptr<const Functions> functions_;
  cublasLtHandle_t handle_;
  std::string name_;
};

}  // namespace sluice
