// The files that sentence-transformers writes into a model's directory, in the schemas of its
// releases up to 6.2:
//   modules.json                    the modules in order: Transformer, Pooling, Dense, Dropout,
//                                   MultiVectorMask, Normalize and LogitScore, by their class names
//   N_Pooling/config.json           one or more of the modes of pooling, and include_prompt
//   N_Dense/config.json             sizes and activation; weights in its own safetensors. Without a
//                                   Pooling it is of token_embeddings, as in multi-vector
//                                   models, and so is Normalize
//   N_LogitScore/config.json        the tokens whose logits are the score (see pair_frame.h)
//   router_config.json              the modules of queries and documents, if the only module is a
//                                   Router: those of documents are read, and the modules of queries
//                                   are the same or one SparseStaticEmbedding
//   config_sentence_transformers.json   prompts, default_prompt_name, similarity_fn_name, and
//                                   activation_fn of a cross-encoder
//   sentence_bert_config.json       max_seq_length and do_lower_case
// If max_seq_length is absent, model_max_length of tokenizer_config.json is used. Longer texts are
// cut on the side that truncation_side of that file names.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"

namespace sluice {

// Returns the folder of the Transformer, with its config.json, weights and tokenizer, if
// modules.json names a separate folder for it, such as 0_Transformer in early releases.
absl::StatusOr<std::optional<Directory>> OpenTransformerFolder(const Directory& directory);

// Applies the files to `config`, which was read from config.json; has no effect without a
// modules.json. For an unknown module or key, or an unsupported value, returns InvalidArgument with
// the file and the key. `transformer` is the Transformer's folder, or `directory` itself.
absl::Status ReadSentenceFiles(const Directory& directory, const Directory& transformer,
                               ModelConfig* config);

}  // namespace sluice
