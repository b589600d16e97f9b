#include "loadtest/gpu/steps.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/model/graph.h"
#include "kernels/cuda/bfloat16.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::gpu {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;

constexpr int64_t kPatternElements = 1 << 20;

// Adds the shapes of an op's tensors by name.
struct AddTensors {
  std::map<std::string, std::vector<int64_t>>& shapes;

  void Add(const TensorPart& part) const {
    if (part.present()) shapes.try_emplace(part.name, part.shape);
  }
  void operator()(const EmbedOp& op) const { Add(op.table); }
  void operator()(const NormOp& op) const {
    Add(op.weight);
    Add(op.bias);
  }
  void operator()(const LinearOp& op) const {
    Add(op.weight);
    for (const std::string& name : op.more_matrices) Add({name, op.weight.shape});
    Add(op.bias);
  }
  void operator()(const CombineOp& op) const { Add(op.bias); }
  void operator()(const MixOp& op) const {
    Add(op.a_weight);
    Add(op.b_weight);
  }
  void operator()(const HeadOp& op) const {
    Add(op.weight);
    Add(op.bias);
  }
  void operator()(const AttentionOp& op) const { SLUICE_CHECK(op.xsa_gate.empty()); }
  void operator()(const InputOp&) const {}
  void operator()(const RouteOp&) const {}
  void operator()(const RopeStoreOp&) const {}
  void operator()(const ExchangeOp&) const {}
  void operator()(const ActivationOp&) const {}
};

// Writes `elements` values: ones for a vector, otherwise numbers so small that activations stay
// near 1 in a model of any width.
void WriteValues(std::ofstream& file, int64_t elements, bool vector,
                 const std::vector<BFloat16>& pattern) {
  const std::vector<BFloat16> ones(vector ? elements : 0, Narrow<BFloat16>(1.0f));
  const std::vector<BFloat16>& values = vector ? ones : pattern;
  for (int64_t left = elements; left > 0; left -= std::ssize(values)) {
    const int64_t count = std::min(left, static_cast<int64_t>(std::ssize(values)));
    file.write(reinterpret_cast<const char*>(values.data()),
               count * static_cast<int64_t>(sizeof(BFloat16)));
  }
}

// Forwards to the bench's device, because a backend owns its device. New memory holds random
// numbers.
class Borrowed final : public Device {
 public:
  explicit Borrowed(Bench& bench) : bench_(bench), device_(bench.device()) {
    const auto values = Pattern(bench, 1);
    pattern_ = ValueOrDie(device_.Allocate(kPatternBytes));
    const PinnedMemory staging = ValueOrDie(device_.AllocatePinned(kPatternBytes));
    std::copy(values.begin(), values.end(), static_cast<BFloat16*>(staging.get()));
    bench_.stream().CopyToDevice(pattern_.get(), staging.get(), kPatternBytes);
    OrDie(bench_.stream().Synchronize());
  }
  static std::vector<BFloat16> Pattern(Bench& bench, float most) {
    std::uniform_real_distribution<float> uniform(-most, most);
    std::vector<BFloat16> values(kPatternElements);
    for (BFloat16& value : values) value = Narrow<BFloat16>(uniform(bench.random()));
    return values;
  }

  const DeviceInfo& info() const override { return device_.info(); }
  int64_t FreeMemory() const override { return device_.FreeMemory(); }
  int64_t captures() const override { return device_.captures(); }
  std::vector<KernelInfo> KernelTable() const override { return device_.KernelTable(); }
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    auto memory = device_.Allocate(bytes);
    if (memory.ok()) Randomize(memory->get(), bytes);
    return memory;
  }
  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    return device_.AllocatePinned(bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    return device_.CreateStream();
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return device_.CreateEvent();
  }
  absl::StatusOr<double> SecondsOf(DeviceGraph& graph, DeviceStream& stream) override {
    return device_.SecondsOf(graph, stream);
  }
  absl::StatusOr<std::string> DenseLibrary() const override { return device_.DenseLibrary(); }
  std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape,
                                                           const RowClass& rows) override {
    return device_.DenseCandidates(shape, rows);
  }

 private:
  static constexpr size_t kPatternBytes = kPatternElements * sizeof(BFloat16);

  // Fills small memory from the pattern, and large memory by copying the filled part repeatedly.
  void Randomize(void* memory, size_t bytes) {
    auto* const begin = static_cast<char*>(memory);
    size_t filled = std::min(bytes, kPatternBytes);
    bench_.stream().CopyOnDevice(begin, pattern_.get(), filled);
    while (filled < bytes) {
      const size_t more = std::min(bytes - filled, filled);
      bench_.stream().CopyOnDevice(begin + filled, begin, more);
      filled += more;
    }
    OrDie(bench_.stream().Synchronize());
  }
  void Release(void*, bool) override {}  // the device that allocated the memory releases it

  Bench& bench_;
  Device& device_;
  DeviceMemory pattern_;
};

}  // namespace

std::shared_ptr<const Model> PatternModel(const ModelConfig& config) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const Graph graph = BuildGraph(config);
  for (const GraphOp& op : graph.ops) std::visit(AddTensors{shapes}, op);
  nlohmann::json header = nlohmann::json::object();
  int64_t end = 0;
  const auto elements = [](const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  for (const auto& [name, shape] : shapes) {
    const int64_t bytes = elements(shape) * static_cast<int64_t>(sizeof(BFloat16));
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::mt19937_64 random(1);
  const float most = 1 / std::sqrt(static_cast<float>(config.hidden_size));
  std::uniform_real_distribution<float> uniform(-most, most);
  std::vector<BFloat16> pattern(kPatternElements);
  for (BFloat16& value : pattern) value = Narrow<BFloat16>(uniform(random));

  const TemporaryDirectory directory;
  std::ofstream(directory.File("config.json")) << testing::ConfigJson(config);
  {
    std::ofstream file(directory.File("model.safetensors"), std::ios::binary);
    file << testing::SafetensorsFile(header.dump(), "");
    for (const auto& [name, shape] : shapes) {
      WriteValues(file, elements(shape), shape.size() == 1, pattern);
    }
    SLUICE_CHECK(file.flush().good());
  }
  return ValueOrDie(LoadModel("pattern", 1, directory.path()));
}

StepShape StepShape::Fresh(int32_t tokens, int32_t longest) {
  StepShape shape;
  for (int32_t left = tokens; left > 0; left -= longest) {
    shape.pieces.push_back({0, std::min(left, longest)});
  }
  return shape;
}

int32_t StepShape::tokens() const {
  int32_t sum = 0;
  for (const SequenceRows& piece : pieces) sum += piece.count;
  return sum;
}

int32_t StepShape::pages(int32_t page_tokens) const {
  int32_t sum = 0;
  for (const SequenceRows& piece : pieces) {
    sum += (piece.first_position + piece.count + page_tokens - 1) / page_tokens;
  }
  return sum;
}

namespace {

CudaBackendOptions OptionsOf(const std::string& dense) {
  if (dense == "tuned") return {.dense = "own", .kernels = "auto"};
  return {.dense = dense};
}

}  // namespace

Steps::Steps(Bench& bench, const ModelConfig& config, const std::string& dense,
             const Bucket& largest)
    : bench_(bench),
      model_(PatternModel(config)),
      backend_(ValueOrDie(MakeCudaBackend(std::make_unique<Borrowed>(bench), OptionsOf(dense)))),
      executable_(ValueOrDie(backend_->Load(model_))),
      largest_(largest) {
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(config.vocab_size - 1));
  for (int32_t i = 0; i <= largest.tokens; ++i) tokens_.push_back(token(bench.random()));
  for (auto& results : results_) {
    results.resize(largest.tokens + largest.sequences);
    batches_.emplace_back(largest.tokens, largest.sequences,
                          static_cast<int32_t>(config.max_positions), page_tokens());
  }
}

std::unique_ptr<Slot> Steps::MakeSlot() const {
  return ValueOrDie(
      executable_->CreateSlot(largest_, largest_.tokens / page_tokens() + largest_.sequences));
}

void Steps::Run(const Plan& plan, Slot& slot, const StepShape& shape) {
  Start(plan, slot, shape);
  OrDie(executable_->Finish(slot));
}

Bench::Times Steps::Time(const Plan& plan, Slot& slot, const StepShape& shape) {
  return bench_.TimesOf([&] { Run(plan, slot, shape); });
}

double Steps::TimeOverlapping(const Plan& plan, Slot& slot, const StepShape& shape) {
  constexpr int32_t kSteps = 8;
  const auto run = [&] {
    Start(plan, slot, shape);
    for (int32_t i = 1; i < kSteps; ++i) {
      Start(plan, slot, shape);
      OrDie(executable_->Finish(slot));
    }
    OrDie(executable_->Finish(slot));
  };
  return bench_.TimesOf(run).median / kSteps;
}

void Steps::Start(const Plan& plan, Slot& slot, const StepShape& shape) {
  const size_t which = next_++ % batches_.size();
  pages_.resize(shape.pages(page_tokens()));
  std::iota(pages_.begin(), pages_.end(), 0);
  sequences_.clear();
  sampled_.clear();
  const int32_t* page = pages_.data();
  kernels::SampleResult* result = results_[which].data();
  const auto sample = [&](int32_t sequence, int32_t position, int32_t target) {
    sampled_.push_back({.sequence = sequence,
                        .position = position,
                        .target = target,
                        .params = {.temperature = shape.temperature, .seed = next_},
                        .result = result++});
  };
  int32_t offset = 0;
  for (const StepShape::SequenceRows& piece : shape.pieces) {
    const auto sequence = static_cast<int32_t>(std::ssize(sequences_));
    const int32_t end = piece.first_position + piece.count;
    const int32_t* const tokens = tokens_.data() + offset;
    sequences_.push_back({.first_position = piece.first_position,
                          .count = piece.count,
                          .tokens = tokens,
                          .pages = page});
    page += (end + page_tokens() - 1) / page_tokens();
    offset += piece.count;
    if (shape.rows == StepShape::Rows::kLastOfEach) sample(sequence, end - 1, -1);
    if (shape.rows != StepShape::Rows::kAllScored) continue;
    for (int32_t i = 0; i < piece.count; ++i) {
      sample(sequence, piece.first_position + i, tokens[i + 1]);
    }
  }
  if (shape.rows == StepShape::Rows::kLast) {
    const StepShape::SequenceRows& last = shape.pieces.back();
    sample(static_cast<int32_t>(std::ssize(sequences_)) - 1, last.first_position + last.count - 1,
           -1);
  }
  batches_[which].Assign(sequences_, sampled_, executable_->row_order());
  executable_->Start(plan, slot, batches_[which]);
}

}  // namespace sluice::gpu
