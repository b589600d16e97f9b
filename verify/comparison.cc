#include "verify/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_model.h"
#include "kernels/cpu/kv_cache.h"
#include "verify/answers.h"
#include "verify/probes.h"

namespace sluice::verify {
namespace {

// Returns the root mean square of an output. The padding after a sequence's end does not count.
double Scale(const Array& want, const Golden& golden) {
  const int64_t per_sequence = std::ssize(want.values) / want.shape[0];
  double squares = 0;
  int64_t finite = 0;
  for (int64_t s = 0; s < want.shape[0]; ++s) {
    const int64_t rows = std::ssize(golden.sequences[s]);
    const int64_t count = want.shape.size() == 3 ? rows * want.shape[2] : per_sequence;
    for (const double value : std::span(want.values).subspan(s * per_sequence, count)) {
      if (!std::isfinite(value)) continue;
      squares += value * value;
      ++finite;
    }
  }
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(finite, 1)));
}

double ErrorOf(double got, double want, double scale) {
  if (!std::isfinite(got) || !std::isfinite(want)) {
    return got == want ? 0 : std::numeric_limits<double>::infinity();
  }
  const double unit = std::max(std::abs(want), scale);
  return unit == 0 ? std::abs(got - want) : std::abs(got - want) / unit;
}

class Comparer {
 public:
  Comparer(std::shared_ptr<const Model> model, const Golden& golden)
      : model_(*model), golden_(golden), probes_(FindProbes(*model, golden)), answers_(model) {
    for (const Probe& probe : probes_) {
      AddOutput(probe.name, probe.layer, golden.outputs.at(probe.name));
    }
    logits_ = model_.config.has_lm_head ? AddHead("logits", golden.outputs) : std::nullopt;
    if (!model_.config.serving.multi_vector) {
      AddAnswer("embedding", golden.sequence_outputs, model_.config.embedding_size(),
                &AnswerStates::Outputs::embedding);
    } else {
      AddAnswer("token_embeddings", golden.outputs, model_.config.token_embedding_size(),
                &AnswerStates::Outputs::token_embeddings);
    }
    if (model_.classifier) AddClassifier(*model_.classifier);
    FindUnproven();
  }

  bool WantsLogits() const { return logits_.has_value(); }

  absl::Status CheckWidths() const {
    for (const Probe& probe : probes_) {
      const int64_t width = golden_.outputs.at(probe.name).shape[2];
      const int64_t needed = probe.column + Width(probe.buffer);
      const bool whole = probe.column > 0 || probe.name.starts_with("module:");
      if (whole ? width >= needed : width == needed) continue;
      return WidthError(probe.name, width, needed);
    }
    if (logits_) SLUICE_RETURN_IF_ERROR(CheckWidth(*logits_, model_.config.vocab_size));
    for (const Answer& answer : compared_) {
      SLUICE_RETURN_IF_ERROR(CheckWidth(answer.output, answer.width));
    }
    return absl::OkStatus();
  }

  void Begin(const std::vector<int32_t>& tokens) {
    answers_.Begin(static_cast<int32_t>(tokens.size()));
  }

  // Compares the outputs after op `op` of the replay of one sequence.
  void Look(size_t sequence, size_t op, const StepRun& run) {
    for (size_t i = 0; i < probes_.size(); ++i) {
      if (probes_[i].op != op) continue;
      for (int32_t position = 0; position < run.batch.tokens(); ++position) {
        CompareRow(i, sequence, position, probes_[i].column,
                   RowOf(run, probes_[i].buffer, position));
      }
    }
    if (op != FinalOp(model_.graph)) return;
    for (int32_t position = 0; position < run.batch.tokens(); ++position) {
      answers_.Add(RowOf(run, model_.graph.output, position));
    }
  }

  void LookAtLogits(size_t sequence, std::span<const float> logits) {
    const auto vocab = static_cast<size_t>(model_.config.vocab_size);
    for (size_t at = 0; at < logits.size(); at += vocab) {
      CompareRow(*logits_, sequence, at / vocab, 0, logits.subspan(at, vocab));
    }
  }

  // Compares the answers that are computed after the last op of the replay of one sequence.
  void LookAtAnswers(size_t sequence) {
    const AnswerStates::Outputs found = answers_.Finish();
    for (const Answer& answer : compared_) {
      const std::span<const float> values = found.*answer.values;
      for (size_t at = 0; at < values.size(); at += answer.width) {
        CompareRow(answer.output, sequence, at / answer.width, 0, values.subspan(at, answer.width));
      }
    }
  }

  Comparison Result() && {
    std::vector<std::string> unknown = Unknown();
    return {std::move(outputs_), std::move(unknown), std::move(unproven_),
            std::move(missing_answer_)};
  }

 private:
  // An output that the host computes from states.
  struct Answer {
    size_t output;
    int64_t width;
    std::vector<float> AnswerStates::Outputs::*values;
  };

  size_t AddOutput(const std::string& name, int32_t layer, const Array& want) {
    Worst& worst = outputs_.emplace_back();
    worst.name = name;
    worst.layer = layer;
    worst.of_sequence = want.shape.size() == 2;
    wanted_.push_back(&want);
    scales_.push_back(Scale(want, golden_));
    return outputs_.size() - 1;
  }

  // Returns nullopt if `outputs` has no output of this name.
  std::optional<size_t> AddHead(const std::string& name,
                                const std::map<std::string, Array>& outputs) {
    const auto it = outputs.find(name);
    if (it == outputs.end()) return std::nullopt;
    return AddOutput(name, static_cast<int32_t>(model_.config.layers), it->second);
  }

  void AddAnswer(const std::string& name, const std::map<std::string, Array>& outputs,
                 int64_t width, std::vector<float> AnswerStates::Outputs::*values) {
    if (const auto output = AddHead(name, outputs)) compared_.push_back({*output, width, values});
  }

  void AddClassifier(const Classifier& classifier) {
    const int64_t labels = model_.config.serving.classifier.labels;
    const std::string module = "module:" + classifier.module();
    if (model_.config.serving.classifier.of_tokens) {
      AddAnswer(module, golden_.outputs, labels, &AnswerStates::Outputs::token_scores);
      AddAnswer("token_scores", golden_.outputs, labels, &AnswerStates::Outputs::token_scores);
      return;
    }
    if (!classifier.pooler_module().empty()) {
      AddAnswer("module:" + classifier.pooler_module(), golden_.sequence_outputs,
                model_.config.hidden_size, &AnswerStates::Outputs::pooler);
    }
    AddAnswer(module, golden_.sequence_outputs, labels, &AnswerStates::Outputs::scores);
    AddAnswer("scores", golden_.sequence_outputs, labels, &AnswerStates::Outputs::scores);
  }

  bool Compares(const std::string& name) const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [&](const Worst& worst) { return worst.name == name; });
  }

  void FindUnproven() {
    const std::vector<std::string> names = NamesOfAnswer(model_);
    const auto compared = [this](const std::string& name) { return Compares(name); };
    if (std::none_of(names.begin(), names.end(), compared)) missing_answer_ = names.front();
    if (model_.config.has_lm_head && !logits_ && missing_answer_ != "logits") {
      unproven_.push_back("logits");
    }
    const char* const embedding =
        model_.config.serving.multi_vector ? "token_embeddings" : "embedding";
    if (!model_.config.serving.dense.empty() && !Compares(embedding) &&
        missing_answer_ != embedding) {
      unproven_.push_back(embedding);
    }
  }

  // Returns the names of the golden's outputs that are not compared.
  std::vector<std::string> Unknown() const {
    std::set<const Array*> known(wanted_.begin(), wanted_.end());
    std::vector<std::string> unknown;
    for (const auto* outputs : {&golden_.outputs, &golden_.sequence_outputs}) {
      for (const auto& [name, array] : *outputs) {
        if (!known.contains(&array)) unknown.push_back(name);
      }
    }
    return unknown;
  }

  int64_t Width(BufferId buffer) const {
    return model_.graph.buffers[static_cast<size_t>(buffer)].width;
  }

  std::span<const float> RowOf(const StepRun& run, BufferId buffer, int32_t position) const {
    const int64_t width = Width(buffer);
    const int64_t row = run.batch.sequence_rows()[static_cast<size_t>(position)];
    return {run.buffer(buffer) + row * width, static_cast<size_t>(width)};
  }

  absl::Status CheckWidth(size_t output, int64_t needed) const {
    const int64_t width = wanted_[output]->shape.back();
    if (width == needed) return absl::OkStatus();
    return WidthError(outputs_[output].name, width, needed);
  }

  static absl::Status WidthError(const std::string& name, int64_t width, int64_t needed) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::CHexEscape(name), " has width ", width, "; the model's is ", needed));
  }

  template <typename Value>
  void CompareRow(size_t output, size_t sequence, int64_t position, int64_t column,
                  std::span<const Value> values) {
    Worst& worst = outputs_[output];
    const Array& want = *wanted_[output];
    int64_t row = static_cast<int64_t>(sequence);
    if (!worst.of_sequence) row = row * want.shape[1] + position;
    const double* wanted = want.values.data() + row * want.shape.back() + column;
    for (size_t feature = 0; feature < values.size(); ++feature) {
      const auto got = static_cast<double>(values[feature]);
      const double error = ErrorOf(got, wanted[feature], scales_[output]);
      if (!(error > worst.error)) continue;
      worst.error = error;
      worst.sequence = static_cast<int64_t>(sequence);
      worst.position = position;
      worst.feature = column + static_cast<int64_t>(feature);
      worst.got = got;
      worst.want = wanted[feature];
    }
  }

  const Model& model_;
  const Golden& golden_;
  const std::vector<Probe> probes_;
  AnswerStates answers_;
  // Parallel arrays: first one element for each probe, in the order of the probes, then one for
  // each head. The heads' indices follow the probes' indices.
  std::vector<Worst> outputs_;
  std::vector<const Array*> wanted_;
  std::vector<double> scales_;
  std::optional<size_t> logits_;
  std::vector<Answer> compared_;
  std::vector<std::string> unproven_;
  std::string missing_answer_;
};

// Returns a bucket for the longest sequence by itself.
Bucket BucketFor(const Golden& golden) {
  size_t longest = 0;
  for (const auto& sequence : golden.sequences) longest = std::max(longest, sequence.size());
  return {static_cast<int32_t>(longest), 1};
}

absl::Status RunSequence(const CpuModel& executable, const Model& model, size_t sequence,
                         const Golden& golden, const Plan& plan, Slot& slot, Comparer* comparer) {
  const std::vector<int32_t>& tokens = golden.sequences[sequence];
  comparer->Begin(tokens);
  const auto length = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> pages(slot.pages());
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<float> logits;
  std::vector<kernels::SampleResult> results(tokens.size());
  std::vector<SampledRow> sampled;
  if (comparer->WantsLogits()) {
    logits.resize(tokens.size() * static_cast<size_t>(model.config.vocab_size));
    for (int32_t position = 0; position < length; ++position) {
      SampledRow& row = sampled.emplace_back();
      row.position = position;
      row.target = 0;
      row.logits = logits.data() + position * model.config.vocab_size;
      row.result = &results[position];
    }
  }
  StepBatch batch(length, 1, static_cast<int32_t>(model.config.max_positions), kernels::kPageTokens,
                  static_cast<int32_t>(model.config.input_width), model.config.padding_token);
  StepSequence step{0, length, tokens.data(), pages.data()};
  if (!golden.types.empty()) {
    step.type_count = length;
    step.types = golden.types[sequence].data();
  }
  if (model.config.serving.alignment == PositionAlignment::kEnd) {
    step.position_offset = static_cast<int32_t>(model.config.max_positions) - length;
  }
  batch.Assign({&step, 1}, sampled, executable.row_order());
  SLUICE_RETURN_IF_ERROR(executable.Trace(plan, slot, batch, [&](size_t op, const StepRun& run) {
    comparer->Look(sequence, op, run);
  }));
  comparer->LookAtLogits(sequence, logits);
  comparer->LookAtAnswers(sequence);
  return absl::OkStatus();
}

}  // namespace

const Worst* Comparison::FirstAbove(double tolerance) const {
  for (const Worst& worst : outputs) {
    if (!(worst.error <= tolerance)) return &worst;
  }
  return nullptr;
}

bool Comparison::Same(double tolerance) const {
  return missing_answer.empty() && FirstAbove(tolerance) == nullptr;
}

absl::StatusOr<Comparison> Compare(std::shared_ptr<const Model> model, const Golden& golden,
                                   const CpuOptions& options) {
  if (!model->config.embeds_ids()) {
    return absl::InvalidArgumentError("a model without token ids cannot be compared with a golden");
  }
  Comparer comparer(model, golden);
  SLUICE_RETURN_IF_ERROR(comparer.CheckWidths());
  SLUICE_ASSIGN_OR_RETURN(auto backend, MakeCpuBackend(options));
  SLUICE_ASSIGN_OR_RETURN(auto loaded, backend->Load(model));
  const auto& executable = static_cast<const CpuModel&>(*loaded);
  const Bucket bucket = BucketFor(golden);
  SLUICE_ASSIGN_OR_RETURN(auto plan, executable.Prepare(bucket));
  SLUICE_ASSIGN_OR_RETURN(auto slot,
                          executable.CreateSlot(bucket, MaxPages(bucket, kernels::kPageTokens)));
  for (size_t i = 0; i < golden.sequences.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(RunSequence(executable, *model, i, golden, *plan, *slot, &comparer));
  }
  return std::move(comparer).Result();
}

}  // namespace sluice::verify
