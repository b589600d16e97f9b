// Files that describe heads of token states and the tasks of texts, as published models have them:
//   colbert_linear.safetensors   the vectors of a row: one matrix, with or without a bias. The
//                                first token has no vector
//   sparse_linear.safetensors    a row of numbers that gives each token's weight in a sparse
//                                embedding
//   artifact.metadata            JSON, for an architecture with vectors: their size, markers,
//                                lengths and attention of queries and documents
// and the keys of these in config_sentence_transformers.json and sentence_bert_config.json.
#pragma once

#include "absl/status/status.h"
#include "base/json_reader.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"

namespace sluice {

// Applies the files next to the model's weights in `directory`. `states` is whether no modules.json
// describes the use of the states. Errors name the file.
absl::Status ReadHeadFiles(const Directory& directory, bool states, ModelConfig* config);

// Reads the keys of PyLate: query_prefix, document_prefix, query_length, document_length,
// do_query_expansion, attend_to_expansion_tokens and skiplist_words. If `defaults`, absent keys
// have PyLate's values; otherwise they mean none.
void ReadMarkedTasks(ObjectReader& root, bool defaults, ServingConfig* serving);

// Reads query_length, document_length and query_expansion of a module Transformer.
void ReadTaskLengths(ObjectReader& object, ServingConfig* serving);

// Reads a list of at most 1,024 tokens; an absent key is an empty list.
std::vector<std::string> ReadTokenTexts(ObjectReader& object, const std::string& key);

}  // namespace sluice
