// Writes an int8 checkpoint (compressed-tensors) of a model, tuned with a sample of texts.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::verify {

struct QuantizeOptions {
  std::string text;  // a file with a text in each line, as for VerifyAgainstF32
  std::string out;   // the directory to write, which must not have a model yet
  // Moves scales from the rows that enter projections into the weights before them, if this lowers
  // the projections' measured error. The scales are powers of two, so nothing else changes.
  bool smooth = true;
  // Does not quantise layers whose output on the sample has a larger error, relative to the root
  // mean square of the output. 0 quantises all layers.
  double keep_above = 0;
  // At most this many input channels of an int8 layer stay floats: the fewest that bring its error
  // close to the error with all of them.
  int64_t keep_channels = 0;
};

// Does all of `sluice quantize`: reads the model and the texts, measures, writes the checkpoint,
// and returns the report, with one line for each layer. The head, the embedding, position-wise
// layers, and layers that are not stored [out, in] are not quantised. Errors name the file.
absl::StatusOr<std::string> QuantizeModel(const std::string& model_directory,
                                          const QuantizeOptions& options);

}  // namespace sluice::verify
