#include "verify/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

// What is looked at when an op has run: columns of a golden output, which are all of a buffer's.
struct Probe {
  size_t op;
  BufferId buffer;
  std::string name;
  int64_t column = 0;
  int32_t layer = 0;
};

// The module whose output an op gives as it is; empty: of none.
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
  // Of the golden's outputs, those that no probe is for.
  std::vector<std::string> Unknown() const {
    std::vector<std::string> unknown;
    for (const auto& [name, array] : golden_.outputs) {
      if (!known_.contains(name)) unknown.push_back(name);
    }
    return unknown;
  }
  void Know(const std::string& name) { known_.insert(name); }

 private:
  void AddModule(size_t op) {
    const GraphOp& graph_op = model_.graph.ops[op];
    const std::string module = std::visit(ModuleOf(), graph_op);
    if (module.empty()) return;
    const auto* linear = std::get_if<LinearOp>(&graph_op);
    const bool columns = linear != nullptr && linear->layout == MatrixLayout::kInOut;
    Add(op, std::visit(OutOf(), graph_op), absl::StrCat("module:", module),
        columns ? linear->weight.first : 0);
  }

  void AddStates(size_t op) {
    const std::vector<GraphState>& states = model_.graph.states;
    for (size_t k = 0; k < states.size(); ++k) {
      if (states[k].ops == op + 1) Add(op, states[k].buffer, absl::StrCat("state_", k), 0);
    }
    const size_t head = std::holds_alternative<HeadOp>(model_.graph.ops.back()) ? 1 : 0;
    if (op + 1 + head == model_.graph.ops.size()) Add(op, model_.graph.output, "final", 0);
  }

  void Add(size_t op, BufferId buffer, std::string name, int64_t column) {
    if (!golden_.outputs.contains(name)) return;
    known_.insert(name);
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
  std::set<std::string> known_;
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
      : model_(model), golden_(golden), probes_(model, golden) {
    for (const Probe& probe : probes_.all()) {
      Worst& worst = outputs_.emplace_back();
      worst.name = probe.name;
      worst.layer = probe.layer;
      scales_.push_back(Scale(golden.outputs.at(probe.name)));
    }
    if (golden.outputs.contains("logits") && model.config.has_lm_head) {
      probes_.Know("logits");
      outputs_.push_back({"logits", static_cast<int32_t>(model.config.layers)});
      scales_.push_back(Scale(golden.outputs.at("logits")));
    }
  }

  bool WantsLogits() const { return outputs_.size() > probes_.all().size(); }

  absl::Status CheckWidths() const {
    for (const Probe& probe : probes_.all()) {
      const int64_t width = golden_.outputs.at(probe.name).shape[2];
      const int64_t needed = probe.column + Width(probe.buffer);
      const bool whole = probe.column > 0 || probe.name.starts_with("module:");
      if (whole ? width >= needed : width == needed) continue;
      return WidthError(probe.name, width, needed);
    }
    if (!WantsLogits()) return absl::OkStatus();
    const int64_t width = golden_.outputs.at("logits").shape[2];
    if (width == model_.config.vocab_size) return absl::OkStatus();
    return WidthError("logits", width, model_.config.vocab_size);
  }

  // After op `op` of the replay of one sequence.
  void Look(size_t sequence, size_t op, const StepRun& run) {
    for (size_t i = 0; i < probes_.all().size(); ++i) {
      const Probe& probe = probes_.all()[i];
      if (probe.op != op) continue;
      const int64_t width = Width(probe.buffer);
      for (int32_t position = 0; position < run.batch.tokens(); ++position) {
        const int64_t row = run.batch.sequence_rows()[position];
        const std::span<const float> values(run.buffer(probe.buffer) + row * width,
                                            static_cast<size_t>(width));
        CompareRow(i, sequence, position, probe.column, values);
      }
    }
  }

  void LookAtLogits(size_t sequence, std::span<const float> logits) {
    const auto vocab = static_cast<size_t>(model_.config.vocab_size);
    for (size_t at = 0; at < logits.size(); at += vocab) {
      CompareRow(outputs_.size() - 1, sequence, at / vocab, 0, logits.subspan(at, vocab));
    }
  }

  Comparison Result() && { return {std::move(outputs_), probes_.Unknown()}; }

 private:
  int64_t Width(BufferId buffer) const { return model_.graph.buffers[buffer].width; }

  static absl::Status WidthError(const std::string& name, int64_t width, int64_t needed) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::CHexEscape(name), " has width ", width, "; the model's is ", needed));
  }

  void CompareRow(size_t output, size_t sequence, int64_t position, int64_t column,
                  std::span<const float> values) {
    Worst& worst = outputs_[output];
    const Array& want = golden_.outputs.at(worst.name);
    const int64_t row = sequence * want.shape[1] + position;
    const double* wanted = want.values.data() + row * want.shape[2] + column;
    for (size_t feature = 0; feature < values.size(); ++feature) {
      const auto got = static_cast<double>(values[feature]);
      const double error = ErrorOf(got, wanted[feature], scales_[output]);
      if (!(error > worst.error)) continue;
      worst = {worst.name, worst.layer,
               error,      static_cast<int64_t>(sequence),
               position,   column + static_cast<int64_t>(feature),
               got,        wanted[feature]};
    }
  }

  const Model& model_;
  const Golden& golden_;
  Probes probes_;
  std::vector<Worst> outputs_;  // one a probe, then that of the logits
  std::vector<double> scales_;
};

// Room for the longest sequence alone.
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
  absl::Status status = executable.Trace(
      plan, slot, batch, [&](size_t op, const StepRun& run) { comparer->Look(sequence, op, run); });
  if (status.ok()) comparer->LookAtLogits(sequence, logits);
  return status;
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
