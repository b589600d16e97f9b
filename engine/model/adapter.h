// Low-rank adapters of a model's dense layers, read from folders that PEFT writes.
//
// A folder has adapter_config.json and adapter_model.safetensors. An adapter changes dense layers:
//
//   y += scale * B (A x)
//
// with A [rank, in], B [out, rank] and scale lora_alpha / r, or lora_alpha / sqrt(r) with rsLoRA.
// For an embedding, `in` is the number of its rows, and x selects one of them.
// It may also have a classifier of its own (engine/model/adapter_head.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/adapter_head.h"
#include "engine/model/adapter_limits.h"
#include "engine/model/checkpoint.h"
#include "engine/model/directory.h"
#include "engine/model/graph.h"

namespace sluice {

struct Model;

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kAdapterRoot[] = "base_model.model.";  // before the names of modules

// The matrices of one LinearOp or EmbedOp. If several ops read parts of one tensor, such as a fused
// q, k and v, each has its part of B and the same A.
struct AdapterLayer {
  size_t op;                // index into Graph::ops
  TensorPart a;             // [rank, in]
  TensorPart b;             // [out, rank]
  bool transposed = false;  // A is stored as [in, rank], B as [rank, out]
};

// Immutable, for one model.
struct Adapter {
  std::string name;
  int64_t rank;
  float scale;
  Checkpoint checkpoint;               // of its own folder
  const Checkpoint* shared = nullptr;  // has its tensors instead: the checkpoint of the model
  std::vector<AdapterLayer> layers;    // by ascending ops, at least one without a head
  std::optional<AdapterHead> head;     // needs the checkpoint

  const Checkpoint& tensors() const { return shared != nullptr ? *shared : checkpoint; }
};

// An adapter that can be read again. `read` returns the errors of LoadAdapter.
struct AdapterSource {
  std::string name;
  std::function<absl::StatusOr<std::shared_ptr<const Adapter>>()> read;
};

// Reads a folder. Returns InvalidArgument, which names the file and the key or tensor, for anything
// that would change results and is not supported, such as DoRA, or a module that is not a dense
// layer of the graph.
absl::StatusOr<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& name,
                                                           const Model& model,
                                                           const Directory& folder,
                                                           FileAccess access = FileAccess::kMap);

// Returns the source of the adapter in the folder `name` of `folder`. The model is not owned and
// outlives the source.
AdapterSource SourceOf(const std::string& name, const Model* model,
                       std::shared_ptr<const Directory> folder, FileAccess access);

// Returns the source of the adapter that the model's checkpoint has for the task with this index in
// ModelConfig::task_adapters. The model is not owned and outlives the source.
AdapterSource TaskSource(const Model* model, size_t task);

// Returns the names of the folders of adapters in `folder`, in order. Entries that are not
// directories, and hidden ones, are left out. Returns InvalidArgument for a folder whose name is
// not a valid name, and for too many folders.
absl::StatusOr<std::vector<std::string>> ListAdapters(const Directory& folder);

}  // namespace sluice
