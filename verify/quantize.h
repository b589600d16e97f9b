// Writes a checkpoint in int8 (compressed-tensors) of a model, by what a sample of texts shows.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::verify {

struct QuantizeOptions {
  std::string text;  // a file with a text in each line, as of VerifyAgainstF32
  std::string out;   // the directory to write, which has no model yet
  // Moves scales from the rows that enter projections into the weights before them, where the
  // projections' measured error falls. The scales are powers of two, so that nothing else changes.
  bool smooth = true;
  // Keeps layers as they are stored whose output on the sample has a larger error, relative to the
  // root mean square of the output; 0 keeps none.
  double keep_above = 0;
  // Lets up to so many input channels of a layer in int8 stay floats: as few as bring its error
  // close to that with all of them.
  int64_t keep_channels = 0;
};

// Does all of `sluice quantize`: reads the model and the texts, measures, writes, and returns the
// report, with a line for each layer. Layers that are position-wise, or that are not stored
// [out, in], stay as they are stored, and so do the head and the embedding. Errors name the file.
absl::StatusOr<std::string> QuantizeModel(const std::string& model_directory,
                                          const QuantizeOptions& options);

}  // namespace sluice::verify
