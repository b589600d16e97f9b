// An adapter whose matrices are packed for the products of a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/device.h"
#include "engine/model/model.h"
#include "kernels/cuda/matrix_tables.h"

namespace sluice {

// The places of the matrices of an op in an adapter's table: A [in -> rank], and
// scale * B [rank -> out]. A of an embedding is not packed.
constexpr int32_t PlaceOfA(size_t op) { return static_cast<int32_t>(2 * op); }
constexpr int32_t PlaceOfB(size_t op) { return static_cast<int32_t>(2 * op + 1); }

// Returns the most ranks that an adapter's layers, which are joined in one op, have together; 0 if
// the graph takes no adapters. `graph` is a model's graph with joined projections.
int64_t MaxJoinedRank(const Graph& graph);

class CudaAdapter final : public LoadedAdapter {
 public:
  // Packs the matrices in the type T of the model's activations. If layers are joined in an op of
  // `graph`, their matrices A are columns of one, and their matrices B are blocks of one that is 0
  // elsewhere. The ranks of an op are rounded up to kRankMultiple. The device outlives the adapter.
  template <typename T>
  static absl::StatusOr<std::unique_ptr<const CudaAdapter>> Pack(const Model& model,
                                                                 const Graph& graph,
                                                                 const Adapter& adapter,
                                                                 Device& device);
  // Returns the bytes that Pack takes.
  template <typename T>
  static int64_t BytesOf(const Model& model, const Graph& graph, const Adapter& adapter);

  // Rows of products are aligned to 16 bytes in every type.
  static constexpr int32_t kRankMultiple = 8;

  int64_t bytes() const override { return bytes_; }
  // The matrices of each op of the graph, on the device. An op that the adapter does not change has
  // none.
  const kernels::cuda::PlacedMatrix* table() const {
    return static_cast<const kernels::cuda::PlacedMatrix*>(memory_.get());
  }
  int32_t max_rank() const { return max_rank_; }  // the largest rank of an op

 private:
  CudaAdapter(DeviceMemory memory, int64_t bytes, int32_t max_rank)
      : memory_(std::move(memory)), bytes_(bytes), max_rank_(max_rank) {}

  const DeviceMemory memory_;  // the table, then the matrices
  const int64_t bytes_;
  const int32_t max_rank_;
};

}  // namespace sluice
