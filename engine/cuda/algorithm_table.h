// The choice among a library's algorithms for each dense layer, as measured on one kind of GPU
// (`gpu_bench tune`). It is valid for that GPU and the same version of the library only.
//
//   {"sluice_algorithms": 1,
//    "gpu": the name that the driver gives,
//    "library": "cublaslt130002",
//    "layers": [{"k": 1024, "n": 2816, "dtype": "bf16" | "f32" | "int8", "bias": false,
//                "accumulate": false, "head": false, "activation": "none" | "relu" | "gelu_tanh",
//                "algorithm": 128 hexadecimal digits,
//                "classes": [{"rows": 16, "algorithm": 128 hexadecimal digits}, ...],
//                "note": for people}, ...]}
//
// `algorithm` is the reference of a layer's family. `classes` has the algorithms of other classes
// of rows, by the last number of rows (dense_layer.h); it may be the reference. All keys of a layer
// but k, n and algorithm may be absent; dtype is then bf16. For a class that the table leaves out,
// the library's order decides.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/dense_layer.h"

namespace sluice {

class AlgorithmTable {
 public:
  static constexpr size_t kMaxTableLayers = 4096;
  static constexpr size_t kMaxBytes = 4 << 20;  // of a file

  AlgorithmTable(std::string gpu, std::string library)
      : gpu_(std::move(gpu)), library_(std::move(library)) {}
  // Returns InvalidArgument with the key and the limit that it exceeds.
  static absl::StatusOr<AlgorithmTable> Parse(std::string_view text);

  // Adds a layer with its family. Returns AlreadyExists if the shape has an algorithm.
  absl::Status Add(const DenseShape& shape, const DenseAlgorithms& algorithms, std::string note);

  const std::string& gpu() const { return gpu_; }
  const std::string& library() const { return library_; }
  size_t size() const { return layers_.size(); }
  const DenseAlgorithms* Find(const DenseShape& shape) const;  // nullptr if there is none

  // Returns a digest, in eight hexadecimal digits, of everything that affects bits.
  std::string Digest() const;
  // Returns the content of the file.
  std::string Text() const;

 private:
  struct Layer {
    DenseAlgorithms algorithms;
    std::string note;
  };
  // Returns the table as JSON, with or without the notes.
  std::string Render(bool notes, int indent) const;

  std::string gpu_, library_;
  std::map<DenseShape, Layer> layers_;
};

// Returns a text such as "1024 x 2816 bf16, bias, relu".
std::string ToString(const DenseShape& shape);

// Returns the table for a GPU and a library. It comes from the file at `path`, which must be for
// them. If `path` is empty, it is the matching table of `texts`, if any. Errors name the file.
absl::StatusOr<std::optional<AlgorithmTable>> ChooseTable(const std::string& gpu,
                                                          const std::string& library,
                                                          const std::string& path,
                                                          std::span<const std::string_view> texts);

// Returns the contents of the files of engine/cuda/algorithms/.
std::span<const std::string_view> CommittedAlgorithms();

}  // namespace sluice
