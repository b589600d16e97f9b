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
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_model.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::verify {
namespace {

// Columns of a golden output to compare after an op has run; a buffer's row covers all of them.
struct Probe {
  size_t op;
  BufferId buffer;
  std::string name;
  int64_t column = 0;
  int32_t layer = 0;
};

// Returns the module whose output an op gives unchanged; empty if there is none.
struct ModuleOf {
  std::string operator()(const LinearOp& op) const {
    return op.accumulate ? "" : Module(op.weight.name);
  }
  std::string operator()(const NormOp& op) const {
    return op.scale == 1 ? Module(op.weight.name) : "";
  }
  std::string operator()(const EmbedOp& op) const {
    return op.accumulate || op.scale != 1 ? "" : Module(op.table.name);
  }
  template <typename Op>
  std::string operator()(const Op&) const {
    return "";
  }

 private:
  static std::string Module(const std::string& tensor) {
    return tensor.substr(0, tensor.rfind('.'));
  }
};

struct OutOf {
  template <typename Op>
  BufferId operator()(const Op& op) const {
    if constexpr (requires { op.out; }) {
      return op.out;
    } else {
      return kNoBuffer;
    }
  }
};

// Returns the op whose output is the state after the last norm.
size_t FinalOp(const Graph& graph) {
  const size_t head = std::holds_alternative<HeadOp>(graph.ops.back()) ? 1 : 0;
  return graph.ops.size() - 1 - head;
}

// Pools the state of one sequence for a classifier. Positions come in ascending order.
class PooledState {
 public:
  PooledState(Pooling pooling, int64_t width)
      : pooling_(pooling), sum_(static_cast<size_t>(width)) {}

  void Clear() {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    positions_ = 0;
  }
  void Add(std::span<const float> state) {
    if (pooling_ == Pooling::kLast) Clear();
    if (pooling_ == Pooling::kCls && positions_ > 0) return;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += state[i];
    ++positions_;
  }
  std::vector<double> Mean() const {
    std::vector<double> mean = sum_;
    for (double& value : mean) value /= static_cast<double>(positions_);
    return mean;
  }

 private:
  const Pooling pooling_;
  std::vector<double> sum_;
  int64_t positions_ = 0;
};

class Probes {
 public:
  Probes(const Model& model, const Golden& golden) : model_(model), golden_(golden) {
    const Graph& graph = model.graph;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      AddModule(op);
      AddStates(op);
    }
  }

  const std::vector<Probe>& all() const { return probes_; }

 private:
  void AddModule(size_t op) {
    const GraphOp& graph_op = model_.graph.ops[op];
    const std::string module = std::visit(ModuleOf(), graph_op);
    if (module.empty()) return;
    const auto* linear = std::get_if<LinearOp>(&graph_op);
    if (linear != nullptr && linear->weight.run > 0) return;  // its outputs are not neighbours
    Add(op, std::visit(OutOf(), graph_op), absl::StrCat("module:", module),
        linear == nullptr ? 0 : FirstColumn(*linear));
  }

  // Returns the first output of the layer among those of its module.
  static int64_t FirstColumn(const LinearOp& op) {
    switch (op.layout) {
      case MatrixLayout::kInOut:
        return op.weight.first;
      case MatrixLayout::kOutIn:
        return op.weight.first / op.weight.shape[1];
      case MatrixLayout::kPositionInOut:
        break;
    }
    return 0;
  }

  void AddStates(size_t op) {
    const std::vector<GraphState>& states = model_.graph.states;
    for (size_t k = 0; k < states.size(); ++k) {
      if (states[k].ops == op + 1) Add(op, states[k].buffer, absl::StrCat("state_", k), 0);
    }
    if (op == FinalOp(model_.graph)) Add(op, model_.graph.output, "final", 0);
  }

  void Add(size_t op, BufferId buffer, std::string name, int64_t column) {
    if (!golden_.outputs.contains(name)) return;
    probes_.push_back({op, buffer, std::move(name), column, LayerOf(op)});
  }

  int32_t LayerOf(size_t op) const {
    int32_t layer = -1;
    for (const GraphState& state : model_.graph.states) layer += op >= state.ops ? 1 : 0;
    return layer;
  }

  const Model& model_;
  const Golden& golden_;
  std::vector<Probe> probes_;
};

double Scale(const Array& want) {
  double squares = 0;
  int64_t finite = 0;
  for (const double value : want.values) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++finite;
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
  Comparer(const Model& model, const Golden& golden)
      : model_(model),
        golden_(golden),
        probes_(model, golden),
        pooled_(model.config.serving.classifier.pooling, model.config.hidden_size) {
    for (const Probe& probe : probes_.all()) {
      AddOutput(probe.name, probe.layer, golden.outputs.at(probe.name));
    }
    if (model.config.has_lm_head) {
      logits_ = AddHead("logits", golden.outputs);
      if (!logits_) unproven_.push_back("logits");
    }
    if (ClassifiesRows()) AddClassifier(*model.classifier);
    if (model.classifier && !ClassifiesRows()) unproven_.push_back("token_scores");
  }

  bool WantsLogits() const { return logits_.has_value(); }

  absl::Status CheckWidths() const {
    for (const Probe& probe : probes_.all()) {
      const int64_t width = golden_.outputs.at(probe.name).shape[2];
      const int64_t needed = probe.column + Width(probe.buffer);
      const bool whole = probe.column > 0 || probe.name.starts_with("module:");
      if (whole ? width >= needed : width == needed) continue;
      return WidthError(probe.name, width, needed);
    }
    const int64_t labels = model_.config.serving.classifier.labels;
    const std::pair<std::optional<size_t>, int64_t> heads[] = {{logits_, model_.config.vocab_size},
                                                               {pooler_, model_.config.hidden_size},
                                                               {classifier_, labels},
                                                               {scores_, labels}};
    for (const auto& [output, needed] : heads) {
      if (!output) continue;
      const int64_t width = wanted_[*output]->shape.back();
      if (width != needed) return WidthError(outputs_[*output].name, width, needed);
    }
    return absl::OkStatus();
  }

  // Compares the outputs after op `op` of the replay of one sequence.
  void Look(size_t sequence, size_t op, const StepRun& run) {
    for (size_t i = 0; i < probes_.all().size(); ++i) {
      const Probe& probe = probes_.all()[i];
      if (probe.op != op) continue;
      for (int32_t position = 0; position < run.batch.tokens(); ++position) {
        CompareRow(i, sequence, position, probe.column, RowOf(run, probe.buffer, position));
      }
    }
    if (!ClassifiesRows() || op != FinalOp(model_.graph)) return;
    for (int32_t position = 0; position < run.batch.tokens(); ++position) {
      pooled_.Add(RowOf(run, model_.graph.output, position));
    }
  }

  void LookAtLogits(size_t sequence, std::span<const float> logits) {
    const auto vocab = static_cast<size_t>(model_.config.vocab_size);
    for (size_t at = 0; at < logits.size(); at += vocab) {
      CompareRow(*logits_, sequence, at / vocab, 0, logits.subspan(at, vocab));
    }
  }

  // Compares the classifier's outputs after the last op of the replay of one sequence.
  void LookAtClassifier(size_t sequence) {
    if (!ClassifiesRows()) return;
    const std::vector<double> pooled = pooled_.Mean();
    pooled_.Clear();
    std::vector<double> scores;
    model_.classifier->Score(pooled, &scores);
    const auto compare = [&](std::optional<size_t> output, std::span<const double> values) {
      if (output) CompareRow(*output, sequence, 0, 0, values);
    };
    if (pooler_) compare(pooler_, model_.classifier->Pooler(pooled));
    compare(classifier_, scores);
    compare(scores_, scores);
  }

  Comparison Result() && {
    std::vector<std::string> unknown = Unknown();
    return {std::move(outputs_), std::move(unknown), std::move(unproven_)};
  }

 private:
  size_t AddOutput(const std::string& name, int32_t layer, const Array& want) {
    Worst& worst = outputs_.emplace_back();
    worst.name = name;
    worst.layer = layer;
    worst.of_sequence = want.shape.size() == 2;
    wanted_.push_back(&want);
    scales_.push_back(Scale(want));
    return outputs_.size() - 1;
  }

  // Returns nullopt if `outputs` has no output of that name.
  std::optional<size_t> AddHead(const std::string& name,
                                const std::map<std::string, Array>& outputs) {
    const auto it = outputs.find(name);
    if (it == outputs.end()) return std::nullopt;
    return AddOutput(name, static_cast<int32_t>(model_.config.layers), it->second);
  }

  bool ClassifiesRows() const {
    return model_.classifier && !model_.config.serving.classifier.of_tokens;
  }

  void AddClassifier(const Classifier& classifier) {
    if (!classifier.pooler_module().empty()) {
      pooler_ = AddHead("module:" + classifier.pooler_module(), golden_.sequence_outputs);
    }
    classifier_ = AddHead("module:" + classifier.module(), golden_.sequence_outputs);
    scores_ = AddHead("scores", golden_.sequence_outputs);
    if (!classifier_ && !scores_) unproven_.push_back("scores");
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
  Probes probes_;
  PooledState pooled_;
  // Parallel arrays: first one element for each probe, in the order of the probes, then those of
  // the heads, whose indices follow.
  std::vector<Worst> outputs_;
  std::vector<const Array*> wanted_;
  std::vector<double> scales_;
  std::optional<size_t> logits_, pooler_, classifier_, scores_;
  std::vector<std::string> unproven_;
};

// Returns a bucket that holds the longest sequence alone.
Bucket BucketFor(const Golden& golden) {
  size_t longest = 0;
  for (const auto& sequence : golden.sequences) longest = std::max(longest, sequence.size());
  return {static_cast<int32_t>(longest), 1};
}

absl::Status RunSequence(const CpuModel& executable, const Model& model, size_t sequence,
                         const std::vector<int32_t>& tokens, const Plan& plan, Slot& slot,
                         Comparer* comparer) {
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
                  static_cast<int32_t>(model.config.input_width));
  StepSequence step{0, length, tokens.data(), pages.data()};
  if (model.config.serving.alignment == PositionAlignment::kEnd) {
    step.position_offset = static_cast<int32_t>(model.config.max_positions) - length;
  }
  batch.Assign({&step, 1}, sampled, executable.row_order());
  SLUICE_RETURN_IF_ERROR(executable.Trace(plan, slot, batch, [&](size_t op, const StepRun& run) {
    comparer->Look(sequence, op, run);
  }));
  comparer->LookAtLogits(sequence, logits);
  comparer->LookAtClassifier(sequence);
  return absl::OkStatus();
}

}  // namespace

const Worst* Comparison::FirstAbove(double tolerance) const {
  for (const Worst& worst : outputs) {
    if (!(worst.error <= tolerance)) return &worst;
  }
  return nullptr;
}

absl::StatusOr<Comparison> Compare(std::shared_ptr<const Model> model, const Golden& golden,
                                   const CpuOptions& options) {
  if (!model->config.embeds_ids()) {
    return absl::InvalidArgumentError("a model without token ids cannot be compared so");
  }
  Comparer comparer(*model, golden);
  SLUICE_RETURN_IF_ERROR(comparer.CheckWidths());
  SLUICE_ASSIGN_OR_RETURN(auto backend, MakeCpuBackend(options));
  SLUICE_ASSIGN_OR_RETURN(auto loaded, backend->Load(model));
  const auto& executable = static_cast<const CpuModel&>(*loaded);
  const Bucket bucket = BucketFor(golden);
  SLUICE_ASSIGN_OR_RETURN(auto plan, executable.Prepare(bucket));
  SLUICE_ASSIGN_OR_RETURN(auto slot,
                          executable.CreateSlot(bucket, MostPages(bucket, kernels::kPageTokens)));
  for (size_t i = 0; i < golden.sequences.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        RunSequence(executable, *model, i, golden.sequences[i], *plan, *slot, &comparer));
  }
  return std::move(comparer).Result();
}

}  // namespace sluice::verify
