// Models and messages for tests of the server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_stats.h"
#include "engine/model/model.h"
#include "proto/inference.pb.h"
#include "tests/support/tensor_bytes.h"  // IWYU pragma: export

namespace sluice::testing {

using sluice::Bytes;
using sluice::BytesElement;
using sluice::Values;

// Returns a model of 258 tokens, 64 positions, 2 layers and 3 heads, with a byte tokenizer whose
// bos is 256.
std::shared_ptr<const Model> TextModel(const std::string& name = "text", int64_t version = 1);

// Returns example statistics of such a model at the time `now`: one bucket was used 5 s earlier,
// another was withdrawn.
ModelStats ExampleStats(MonoTime now, const std::string& name = "text");

// Adds an input with raw contents.
void AddInput(inference::ModelInferRequest* request, const std::string& name,
              const std::string& datatype, const std::vector<int64_t>& shape,
              const std::string& raw);

// Returns a request with one row of INT32 ids for the model "text".
inference::ModelInferRequest IdsRequest(const std::vector<int32_t>& ids);
inference::ModelInferRequest TextRequest(const std::string& text);

void SetInt(inference::ModelInferRequest* request, const std::string& name, int64_t value);

// Returns the raw contents of an output. If it is absent, fails the test and returns "".
std::string RawOutput(const inference::ModelInferResponse& response, const std::string& name);
std::vector<int64_t> ShapeOf(const inference::ModelInferResponse& response,
                             const std::string& name);

}  // namespace sluice::testing
