#include "verify/answers.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::verify {
namespace {

bool ClassifiesRows(const Model& model) {
  return model.classifier && !model.config.serving.classifier.of_tokens;
}

}  // namespace

std::vector<std::string> NamesOfAnswer(const Model& model) {
  const ModelConfig& config = model.config;
  if (model.classifier) {
    return {config.serving.classifier.of_tokens ? "token_scores" : "scores",
            absl::StrCat("module:", model.classifier->module())};
  }
  if (config.serving.multi_vector) return {"token_embeddings"};
  if (config.serving.sentence_modules) return {"embedding"};
  if (config.has_lm_head) return {"logits"};
  std::vector<std::string> names = {"embedding", "final"};
  if (!config.norm.final) names.push_back(absl::StrCat("state_", config.layers));
  return names;
}

AnswerStates::AnswerStates(std::shared_ptr<const Model> model) {
  const auto spec = std::make_shared<RequestSpec>();
  spec->states.pooling = model->config.serving.pooling;
  spec->states.normalize = model->config.serving.normalize;
  request_.outputs = model->config.serving.multi_vector ? kOutputTokenStates : kOutputEmbedding;
  if (model->classifier) {
    request_.outputs |= ClassifiesRows(*model) ? kOutputScores : kOutputTokenScores;
  }
  spec->model = std::move(model);
  request_.spec = spec;
}

void AnswerStates::Begin(int32_t length) {
  const auto spec = std::make_shared<RequestSpec>(*request_.spec);
  spec->lengths = {length};
  request_.spec = spec;
  length_ = length;
  added_ = 0;
  finite_ = true;
  row_.emplace(request_, length);
  pooled_.reset();
  const ModelConfig& config = spec->model->config;
  if (!ClassifiesRows(*spec->model)) return;
  pooled_.emplace(config.serving.classifier.pooling, 0, length, config.hidden_size);
}

void AnswerStates::Add(std::span<const float> state) {
  const std::vector<double> values(state.begin(), state.end());
  const RowStates::Positions wanted[] = {{added_, 1}};
  finite_ = finite_ && row_->Take(wanted, values, Undivided);
  if (pooled_ && finite_ && pooled_->Wants(added_)) pooled_->Add(values, 1);
  ++added_;
}

AnswerStates::Outputs AnswerStates::Finish() {
  const Model& model = *request_.spec->model;
  const auto labels = static_cast<size_t>(model.config.serving.classifier.labels);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Reply reply;
  if (model.config.serving.multi_vector) {
    reply.token_states.resize(model.config.token_embedding_size() * length_, kNan);
  } else {
    reply.embedding.resize(EmbeddingSize(*request_.spec), kNan);
  }
  if (pooled_) {
    reply.scores.resize(labels, kNan);
  } else if (model.classifier) {
    reply.token_scores.resize(labels * length_, kNan);
  }
  Outputs outputs;
  if (finite_ && row_->Finish(0, &reply, Undivided) && pooled_) {
    const std::vector<double> pooler = model.classifier->Pooler(pooled_->Result());
    outputs.pooler.assign(pooler.begin(), pooler.end());
  } else if (pooled_ && !model.classifier->pooler_module().empty()) {
    outputs.pooler.resize(model.config.hidden_size, kNan);
  }
  outputs.embedding = std::move(reply.embedding);
  outputs.token_embeddings = std::move(reply.token_states);
  outputs.scores = std::move(reply.scores);
  outputs.token_scores = std::move(reply.token_scores);
  return outputs;
}

}  // namespace sluice::verify
