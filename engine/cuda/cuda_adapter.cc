#include "engine/cuda/cuda_adapter.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/cuda/cutter.h"
#include "engine/cuda/upload_ring.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/packed.h"

namespace sluice {
namespace {

using kernels::cuda::PlacedMatrix;

constexpr size_t kPieceBytes = 4 << 20;  // of the upload

// The matrices of an op of the joined graph. Those of its layers are blocks.
struct AdaptedOp {
  struct Block {
    const AdapterLayer* layer;
    int32_t first_rank, first_column;
    int32_t columns;  // of B
  };

  size_t op;
  bool embeds;
  int32_t k, n;
  int32_t rank = 0;
  std::vector<Block> blocks = {};
};

// The arrays of an adapter on the device.
template <typename T>
struct Places {
  struct OfOp {
    T *a, *b;
    int64_t a_elements, b_elements;
  };

  Places(void* memory, const Graph& graph, const std::vector<AdaptedOp>& ops) {
    Cutter cutter(memory);
    table = cutter.Take<PlacedMatrix>(PlaceOfA(graph.ops.size()));
    for (const AdaptedOp& op : ops) {
      const int64_t a =
          op.embeds ? int64_t{op.k} * op.rank : kernels::cuda::PackedElements<T>(1, op.k, op.rank);
      const int64_t b = kernels::cuda::PackedElements<T>(1, op.rank, op.n);
      T* const of_a = cutter.Take<T>(a);
      of_ops.push_back({of_a, cutter.Take<T>(b), a, b});
    }
    bytes = cutter.end();
  }

  PlacedMatrix* table;
  std::vector<OfOp> of_ops;
  int64_t bytes;
};

// Returns the number of the model's ops that an op of the joined graph stands for.
size_t PartsOf(const GraphOp& op) {
  const auto* const linear = std::get_if<LinearOp>(&op);
  return linear == nullptr ? 1 : 1 + linear->more.size();
}

// Adds the matrices of a layer. Layers that read the same A, which are parts of one tensor, share
// its ranks.
void Add(const AdapterLayer& layer, int64_t first_column, int64_t columns, int64_t rank,
         AdaptedOp* to) {
  const auto same = std::ranges::find_if(to->blocks, [&](const AdaptedOp::Block& block) {
    return block.layer->a.name == layer.a.name && block.layer->a.first == layer.a.first;
  });
  const bool is_new = same == to->blocks.end();
  to->blocks.push_back({.layer = &layer,
                        .first_rank = is_new ? to->rank : same->first_rank,
                        .first_column = static_cast<int32_t>(first_column),
                        .columns = static_cast<int32_t>(columns)});
  if (is_new) to->rank += static_cast<int32_t>(rank);
}

// Returns the ops that the adapter changes. A joined op stands for adjacent ops of the model.
std::vector<AdaptedOp> OpsOf(const Model& model, const Graph& graph, const Adapter& adapter) {
  std::vector<AdaptedOp> ops;
  auto layer = adapter.layers.begin();
  size_t first = 0;  // of the op's ops in the model
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const size_t end = first + PartsOf(graph.ops[i]);
    const auto* const linear = std::get_if<LinearOp>(&graph.ops[i]);
    const auto* const embedding = std::get_if<EmbedOp>(&graph.ops[i]);
    AdaptedOp op = {.op = i, .embeds = embedding != nullptr, .k = 0, .n = 0};
    int64_t columns = 0;
    for (size_t part = first; part < end && (linear != nullptr || embedding != nullptr); ++part) {
      const int64_t own = model.graph.buffers[WrittenBuffer(model.graph.ops[part])].width;
      if (layer != adapter.layers.end() && layer->op == part) {
        Add(*layer++, columns, own, adapter.rank, &op);
      }
      columns += own;
    }
    first = end;
    if (op.blocks.empty()) continue;
    op.k = static_cast<int32_t>(linear != nullptr ? graph.buffers[linear->in].width
                                                  : embedding->table.shape[0]);
    op.n = static_cast<int32_t>(columns);
    op.rank = CeilDiv(op.rank, CudaAdapter::kRankMultiple) * CudaAdapter::kRankMultiple;
    ops.push_back(std::move(op));
  }
  SLUICE_CHECK(layer == adapter.layers.end());
  return ops;
}

absl::StatusOr<std::vector<float>> Floats(const Checkpoint& checkpoint, const TensorPart& part,
                                          int64_t count) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  const int64_t run = part.run > 0 ? part.run : count;
  std::vector<float> values(count);
  for (int64_t i = 0; i < count / run; ++i) {
    kernels::ConvertToFloat(tensor.data, tensor.dtype, part.FirstOfRun(i), run,
                            values.data() + i * run);
  }
  return values;
}

// Returns the index of a weight of a packed matrix of `k` rows.
template <typename T>
int64_t PlaceInMatrix(int32_t k, int32_t depth, int32_t column) {
  using namespace kernels::cuda;
  const int64_t slice = int64_t{column / kPanelColumns} * Slices<T>(k) + depth / kSliceDepth<T>;
  return slice * kSliceElements<T> +
         PlaceInSlice(T{}, depth % kSliceDepth<T>, column % kPanelColumns);
}

// Writes a matrix of a layer times `scale`. `place` returns the index in `out` of an element.
template <typename T, typename Place>
absl::Status Fill(const Checkpoint& checkpoint, const TensorPart& part, MatrixLayout layout,
                  int32_t rows, int32_t columns, float scale, const Place& place, T* out) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> values,
                          Floats(checkpoint, part, int64_t{rows} * columns));
  const bool by_rows = layout == MatrixLayout::kInOut;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < columns; ++c) {
      const float value = values[by_rows ? int64_t{r} * columns + c : int64_t{c} * rows + r];
      out[place(r, c)] = kernels::cuda::Narrow<T>(value * scale);
    }
  }
  return absl::OkStatus();
}

// Writes A [k, rank] and scale * B [rank, n] of an op to `a` and `b`, which are 0.
template <typename T>
absl::Status FillBoth(const Adapter& adapter, const AdaptedOp& op, T* a, T* b) {
  const auto rank = static_cast<int32_t>(adapter.rank);
  for (const AdaptedOp::Block& block : op.blocks) {
    const AdapterLayer& layer = *block.layer;
    const MatrixLayout layout = layer.transposed ? MatrixLayout::kInOut : MatrixLayout::kOutIn;
    const auto place_of_a = [&](int32_t i, int32_t r) {
      const int32_t column = block.first_rank + r;
      return op.embeds ? int64_t{i} * op.rank + column : PlaceInMatrix<T>(op.k, i, column);
    };
    const auto place_of_b = [&](int32_t r, int32_t c) {
      return PlaceInMatrix<T>(op.rank, block.first_rank + r, block.first_column + c);
    };
    SLUICE_RETURN_IF_ERROR(Fill(adapter.tensors(), layer.a, layout, op.k, rank, 1, place_of_a, a));
    SLUICE_RETURN_IF_ERROR(Fill(adapter.tensors(), layer.b, layout, rank, block.columns,
                                adapter.scale, place_of_b, b));
  }
  return absl::OkStatus();
}

// Copies arrays of the host to the device.
class Upload {
 public:
  Upload(Device& device, DeviceStream& stream)
      : stream_(stream), ring_(device, stream, kPieceBytes) {}

  template <typename U>
  absl::Status Send(const std::vector<U>& values, U* to) {
    const auto bytes = std::as_bytes(std::span(values));
    for (size_t first = 0; first < bytes.size(); first += kPieceBytes) {
      const auto piece = bytes.subspan(first, std::min(kPieceBytes, bytes.size() - first));
      SLUICE_ASSIGN_OR_RETURN(void* const pinned, ring_.NextPiece(piece.size()));
      std::memcpy(pinned, piece.data(), piece.size());
      stream_.CopyOnDevice(reinterpret_cast<std::byte*>(to) + first, ring_.Send(piece.size()),
                           piece.size());
    }
    return absl::OkStatus();
  }
  absl::Status Finish() { return ring_.Finish(); }

 private:
  DeviceStream& stream_;
  UploadRing ring_;
};

}  // namespace

int64_t MaxJoinedRank(const Graph& graph) {
  if (!graph.takes_adapters) return 0;
  size_t parts = 0;
  for (const GraphOp& op : graph.ops) parts = std::max(parts, PartsOf(op));
  return static_cast<int64_t>(parts) * kMaxAdapterRank;
}

template <typename T>
int64_t CudaAdapter::BytesOf(const Model& model, const Graph& graph, const Adapter& adapter) {
  return Places<T>(nullptr, graph, OpsOf(model, graph, adapter)).bytes;
}

template <typename T>
absl::StatusOr<std::unique_ptr<const CudaAdapter>> CudaAdapter::Pack(const Model& model,
                                                                     const Graph& graph,
                                                                     const Adapter& adapter,
                                                                     Device& device) {
  const std::vector<AdaptedOp> ops = OpsOf(model, graph, adapter);
  const int64_t bytes = Places<T>(nullptr, graph, ops).bytes;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceStream> stream, device.CreateStream());
  SLUICE_ASSIGN_OR_RETURN(DeviceMemory memory, device.Allocate(bytes));
  const Places<T> places(memory.get(), graph, ops);
  Upload upload(device, *stream);
  std::vector<PlacedMatrix> table(PlaceOfA(graph.ops.size()), PlacedMatrix{});
  int32_t max_rank = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const AdaptedOp& op = ops[i];
    const auto& place = places.of_ops[i];
    std::vector<T> a(place.a_elements, T{}), b(place.b_elements, T{});
    SLUICE_RETURN_IF_ERROR(FillBoth(adapter, op, a.data(), b.data()));
    SLUICE_RETURN_IF_ERROR(upload.Send(a, place.a));
    SLUICE_RETURN_IF_ERROR(upload.Send(b, place.b));
    table[PlaceOfA(op.op)] = {place.a, op.k, op.rank};
    table[PlaceOfB(op.op)] = {place.b, op.rank, op.n};
    max_rank = std::max(max_rank, op.rank);
  }
  SLUICE_RETURN_IF_ERROR(upload.Send(table, places.table));
  SLUICE_RETURN_IF_ERROR(upload.Finish());
  return std::unique_ptr<const CudaAdapter>(new CudaAdapter(std::move(memory), bytes, max_rank));
}

#define SLUICE_INSTANTIATE(T)                                                           \
  template int64_t CudaAdapter::BytesOf<T>(const Model&, const Graph&, const Adapter&); \
  template absl::StatusOr<std::unique_ptr<const CudaAdapter>> CudaAdapter::Pack<T>(     \
      const Model&, const Graph&, const Adapter&, Device&);
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(kernels::cuda::BFloat16)
#undef SLUICE_INSTANTIATE

}  // namespace sluice
