#include "tests/support/checkpoint_writer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/model/families/family.h"
#include "engine/model/graph.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using nlohmann::json;

json Indices(const std::vector<bool>& flags) {
  json indices = json::array();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) indices.push_back(i);
  }
  return indices;
}

json Extensions(const ModelConfig& config) {
  json extensions = json::object();
  if (config.byte_tokenizer) extensions["tokenizer"] = "byte";
  const PositionWiseConfig& position_wise = config.position_wise;
  if (position_wise.Any()) {
    const char* const biases[] = {"none", "e", "le"};
    const char* const names[kProjections] = {"q", "k", "v", "o", "gate", "up", "down"};
    json& object = extensions["position_wise"];
    object["projections"] = json::object();
    for (int p = 0; p < kProjections; ++p) {
      const json indices = Indices(position_wise.layers[p]);
      if (!indices.empty()) object["projections"][names[p]] = indices;
    }
    object["max_positions"] = position_wise.max_positions;
    object["bias"] = biases[static_cast<int>(position_wise.bias)];
  }
  extensions["xsa"] = {{"layers", Indices(config.xsa.layers)},
                       {"form", NameOf(config.xsa.form)},
                       {"eps", config.xsa.eps},
                       {"gate", config.xsa.gate ? "tanh" : "none"}};
  if (config.input != InputKind::kIds) {
    extensions["input"] = {{"kind", NameOf(config.input)},
                           {"width", config.input_width},
                           {"adapter", NameOf(config.input_adapter)},
                           {"bias", config.input_adapter_bias}};
  }
  if (config.quantization.projections != Quantization::kNone) {
    extensions["quantization"] = NameOf(config.quantization.projections);
    extensions["quantize_head"] = config.quantization.head;
    if (config.quantization.projections == Quantization::kInt4) {
      extensions["quantization_group"] = config.quantization.group;
    }
  }
  return extensions;
}

json Positions(const ModelConfig& config) {
  json positions = {{"kind", NameOf(config.positions)}};
  if (config.positions == PositionKind::kRope) {
    positions["dims"] = config.rotary_dim();
    positions["reversed"] = config.rope.reversed;
    positions["neighbours"] = config.rope.neighbours;
    if (config.local_rope) positions["local_theta"] = config.local_rope->theta;
    if (!config.unrotated.empty()) positions["unrotated"] = Indices(config.unrotated);
  }
  if (config.positions == PositionKind::kLearned) positions["offset"] = config.position_offset;
  return positions;
}

// Adds the fields that only Sluice architectures have.
void AddExplicit(const ModelConfig& config, json& extensions) {
  extensions["norm"] = {{"kind", NameOf(config.norm.kind)},
                        {"eps", config.norm.eps},
                        {"weight", config.norm.weight},
                        {"bias", config.norm.bias},
                        {"unit_offset", config.norm.unit_offset},
                        {"first", config.norm.first},
                        {"order", NameOf(config.norm.order)},
                        {"embedding", config.norm.embedding},
                        {"final", config.norm.final},
                        {"depth_scale", config.norm.depth_scale}};
  extensions["positions"] = Positions(config);
  extensions["attention"] = {
      {"causal", config.causal},           {"qk_norm", config.qk_norm},
      {"qk_norm_eps", config.qk_norm_eps}, {"qk_norm_weight", NameOf(config.qk_norm_weight)},
      {"soft_cap", config.score_soft_cap}, {"query_gain", config.query_gain}};
  json& attention = extensions["attention"];
  if (config.score_scale > 0) attention["scale"] = config.score_scale;
  if (config.attention_divisor > 0) {
    attention["weights"] = "silu";
    attention["divisor"] = config.attention_divisor;
  }
  attention["qkv_silu"] = config.qkv_silu;
  attention["gate"] = config.attention_gate;
  if (config.window > 0) {
    attention["window"] = config.window;
    attention["windowed"] = Indices(config.windowed);
  }
  if (config.relative_bias.buckets > 0) {
    attention["relative_bias"] = {{"buckets", config.relative_bias.buckets},
                                  {"max_distance", config.relative_bias.max_distance}};
  }
  if (config.disentangled.span > 0) {
    const DisentangledConfig& wanted = config.disentangled;
    attention["disentangled"] = {{"span", wanted.span},
                                 {"max_distance", wanted.max_distance},
                                 {"terms", NameOf(wanted.terms)},
                                 {"shared", wanted.shared},
                                 {"norm", wanted.norm}};
  }
  extensions["mixer"] = NameOf(config.mixer);
  extensions["mlp"] = {{"activation", NameOf(config.activation)},
                       {"gated", config.gated_mlp},
                       {"present", config.has_mlp}};
  if (config.experts.count > 0) {
    extensions["experts"] = {
        {"count", config.experts.count}, {"chosen", config.experts.chosen},
        {"width", config.experts.width}, {"weights", NameOf(config.experts.softmax)},
        {"bias", config.experts.bias},   {"layers", Indices(config.experts.layers)}};
  }
  extensions["biases"] = {{"qkv", config.qkv_bias},
                          {"o", config.output_bias},
                          {"mlp", config.mlp_bias},
                          {"down", config.mlp_bias || config.down_bias},
                          {"head", config.head_bias}};
  extensions["block"] = !config.parallel_blocks ? "sequential"
                        : config.parallel_norms ? "parallel_norms"
                                                : "parallel";
  extensions["branch_scale"] = config.branch_scale;
  extensions["residual_mix"] = config.residual_mix;
  extensions["skip_weights"] = config.skip_weights;
  extensions["embedding_scale"] = config.embedding_scale;
  extensions["token_types"] = config.token_types;
  extensions["logit_soft_cap"] = config.logit_soft_cap;
}

// The distribution of a tensor's random values: mean and standard deviation.
struct Spec {
  std::vector<int64_t> shape;
  float mean;
  float deviation;
};

// Maps the name of each tensor in the graph to its spec.
class Specs {
 public:
  explicit Specs(const ModelConfig& config) : config_(config), graph_(BuildGraph(config)) {
    for (const GraphOp& op : graph_.ops) std::visit(*this, op);
  }

  void operator()(const EmbedOp& op) { Add(op.table, 0, 0.5f); }
  void operator()(const NormOp& op) {
    Add(op.weight, 1 - op.weight_offset, 0.2f);
    Add(op.bias, 0, 0.2f);
  }
  void operator()(const LinearOp& op) {
    const float deviation = 1 / std::sqrt(static_cast<float>(Width(op.in)));
    Add(op.weight, 0, deviation);
    for (const std::string& name : op.more_matrices) Add({name, op.weight.shape}, 0, deviation);
    Add(op.bias, 0, 0.2f);
  }
  void operator()(const CombineOp& op) { Add(op.bias, 0, 0.2f); }
  void operator()(const AttentionOp& op) {
    Add(op.relative_bias, 0, 0.5f);
    if (op.relative) AddTables(*op.relative);
    if (!op.xsa_gate.empty()) Add({op.xsa_gate, {config_.heads}}, 0, 1);
  }
  void operator()(const MixOp& op) {
    Add(op.a_weight, 1, 0.3f);
    Add(op.b_weight, 0.5f, 0.3f);
  }
  void operator()(const HeadOp& op) {
    Add(op.weight, 0, 1 / std::sqrt(static_cast<float>(config_.hidden_size)));
    Add(op.bias, 0, 0.2f);
  }
  void operator()(const InputOp&) {}
  void operator()(const RouteOp&) {}
  void operator()(const RopeStoreOp&) {}
  void operator()(const ExchangeOp&) {}
  void operator()(const ActivationOp&) {}

  const std::map<std::string, Spec>& specs() const { return specs_; }

 private:
  // Adds a spec unless an earlier op has used the tensor.
  void Add(const TensorPart& part, float mean, float deviation) {
    if (part.present()) specs_.try_emplace(part.name, Spec{part.shape, mean, deviation});
  }
  void AddTables(const RelativeTables& tables) {
    Add(tables.positions, 0, 0.5f);
    if (tables.norm) (*this)(*tables.norm);
    for (const std::optional<LinearOp>& table : {tables.keys, tables.queries}) {
      if (!table) continue;
      Add(table->weight, 0, 1 / std::sqrt(static_cast<float>(config_.hidden_size)));
      Add(table->bias, 0, 0.2f);
    }
  }
  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }

  const ModelConfig& config_;
  Graph graph_;
  std::map<std::string, Spec> specs_;
};

const char* DTypeName(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return "F32";
    case kernels::DType::kF16:
      return "F16";
    case kernels::DType::kBF16:
      return "BF16";
    case kernels::DType::kI8:
      return "I8";
    case kernels::DType::kI32:
      return "I32";
  }
  SLUICE_CHECK(false);
}

// Truncates the mantissa, which is fine for random numbers whose f16 form is a normal number.
void Append(float value, kernels::DType dtype, std::string& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t stored = bits;
  if (dtype == kernels::DType::kBF16) stored = bits >> 16;
  if (dtype == kernels::DType::kF16) {
    const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
    const uint32_t magnitude = exponent > 0 ? (exponent << 10) | (bits >> 13 & 0x3ff) : 0;
    stored = (bits >> 16 & 0x8000) | magnitude;
  }
  char bytes[4];
  std::memcpy(bytes, &stored, sizeof(stored));
  out.append(bytes, kernels::DTypeBytes(dtype));
}

TensorBytes Draw(const std::string& name, const Spec& spec, kernels::DType dtype,
                 std::mt19937_64& random) {
  std::normal_distribution<float> normal(spec.mean, spec.deviation);
  TensorBytes tensor{name, DTypeName(dtype), spec.shape, ""};
  int64_t elements = 1;
  for (int64_t size : spec.shape) elements *= size;
  for (int64_t i = 0; i < elements; ++i) Append(normal(random), dtype, tensor.data);
  return tensor;
}

}  // namespace

std::string SafetensorsFile(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  char bytes[sizeof(size)];
  std::memcpy(bytes, &size, sizeof(size));
  return std::string(bytes, sizeof(bytes)) + header + data;
}

std::string SafetensorsFile(const std::vector<TensorBytes>& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TensorBytes& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return SafetensorsFile(header.dump(), data);
}

ModelConfig TinySluiceConfig(int64_t layers) {
  ModelConfig config = TinyConfig(layers);
  config.architecture = "SluiceForCausalLM";
  config.family = &kSluiceFamily;
  return config;
}

ModelConfig TinyConfig(int64_t layers) {
  ModelConfig config;
  config.vocab_size = 61;
  config.hidden_size = 32;
  config.intermediate_size = 40;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_positions = 40;
  for (auto& flags : config.position_wise.layers) flags.assign(layers, false);
  config.xsa.layers.assign(layers, false);
  return config;
}

std::string ConfigJson(const ModelConfig& config) {
  SLUICE_CHECK(config.family->takes_extensions);
  json object = {{"architectures", {config.architecture}},
                 {"vocab_size", config.vocab_size},
                 {"hidden_size", config.hidden_size},
                 {"intermediate_size", config.intermediate_size},
                 {"num_hidden_layers", config.layers},
                 {"num_attention_heads", config.heads},
                 {"num_key_value_heads", config.kv_heads},
                 {"head_dim", config.head_dim},
                 {"max_position_embeddings", config.max_positions},
                 {"rope_theta", config.rope.theta},
                 {"tie_word_embeddings", config.tie_word_embeddings},
                 {"eos_token_id", config.eos_token_ids},
                 {"sluice", Extensions(config)}};
  if (config.family == &kLlamaFamily) {
    object["rms_norm_eps"] = config.norm.eps;
    object["attention_bias"] = config.qkv_bias;
    object["mlp_bias"] = config.mlp_bias;
  } else {
    AddExplicit(config, object["sluice"]);
  }
  if (config.bos_token_id >= 0) object["bos_token_id"] = config.bos_token_id;
  if (config.rope.llama3) {
    const RopeConfig::Llama3& llama3 = *config.rope.llama3;
    object["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", llama3.factor},
                              {"low_freq_factor", llama3.low_freq_factor},
                              {"high_freq_factor", llama3.high_freq_factor},
                              {"original_max_position_embeddings", llama3.original_max_positions}};
  }
  return object.dump(2);
}

void WriteModel(const ModelConfig& config, uint64_t seed, kernels::DType dtype,
                const std::string& directory) {
  std::mt19937_64 random(seed);
  std::vector<TensorBytes> tensors;
  const Specs all(config);
  for (const auto& [name, spec] : all.specs()) tensors.push_back(Draw(name, spec, dtype, random));
  WriteTestFile(directory + "/config.json", ConfigJson(config));
  WriteTestFile(directory + "/model.safetensors", SafetensorsFile(tensors));
}

std::shared_ptr<const Model> RandomModel(const ModelConfig& config, uint64_t seed,
                                         kernels::DType dtype) {
  const TemporaryDirectory directory;
  WriteModel(config, seed, dtype, directory.path());
  auto model = LoadModel("random", 1, directory.path());
  if (!model.ok()) std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
  SLUICE_CHECK(model.ok());
  return *std::move(model);
}

void WriteAdapter(const Model& model, uint64_t seed, int64_t rank, kernels::DType dtype,
                  const std::string& directory) {
  std::mt19937_64 random(seed);
  std::set<std::string> modules;
  std::vector<TensorBytes> tensors;
  const auto deviation = [](int64_t n) { return 1 / std::sqrt(static_cast<float>(n)); };
  for (const GraphOp& each : model.graph.ops) {
    if (const auto* const table = std::get_if<EmbedOp>(&each); table && table->adaptable()) {
      const std::vector<int64_t>& shape = table->table.shape;
      const std::string module = table->table.name.substr(0, table->table.name.rfind('.'));
      const std::string name = "base_model.model." + module + ".lora_embedding_";
      tensors.push_back(Draw(name + "A", {{rank, shape[0]}, 0, 1}, dtype, random));
      tensors.push_back(
          Draw(name + "B", {{shape[1], rank}, 0, 0.1f * deviation(rank)}, dtype, random));
    }
    const auto* const op = std::get_if<LinearOp>(&each);
    if (op == nullptr || !op->adaptable()) continue;
    const std::string module = op->weight.name.substr(0, op->weight.name.rfind('.'));
    if (!modules.insert(module).second || (modules.size() > 1 && random() % 4 == 0)) continue;
    const int64_t in = model.graph.buffers[op->in].width;
    const int64_t out = op->weight.shape[op->layout == MatrixLayout::kInOut ? 1 : 0];
    const std::string name = "base_model.model." + module;
    tensors.push_back(Draw(name + ".lora_A.weight", {{rank, in}, 0, deviation(in)}, dtype, random));
    tensors.push_back(
        Draw(name + ".lora_B.weight", {{out, rank}, 0, 0.1f * deviation(rank)}, dtype, random));
  }
  std::filesystem::create_directories(directory);
  WriteTestFile(directory + "/adapter_config.json",
                json{{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", 1.5 * rank}}.dump());
  WriteTestFile(directory + "/adapter_model.safetensors", SafetensorsFile(tensors));
}

std::shared_ptr<const Model> RandomModelWithAdapters(const ModelConfig& config, uint64_t seed,
                                                     kernels::DType dtype, int adapters,
                                                     const ModelOptions& options) {
  // The adapters are read again when they are loaded.
  struct Held {
    TemporaryDirectory directory;
    std::shared_ptr<const Model> model;
  };
  const auto held = std::make_shared<Held>();
  const TemporaryDirectory& directory = held->directory;
  WriteModel(config, seed, dtype, directory.path());
  const auto base = LoadModel("random", 1, directory.path());
  SLUICE_CHECK(base.ok());
  for (int i = 0; i < adapters; ++i) {
    WriteAdapter(**base, seed + i, 1 + 5 * i % 24,
                 i % 2 == 0 ? kernels::DType::kF32 : kernels::DType::kBF16,
                 directory.File("adapters/" + std::to_string(i)));
  }
  auto model = LoadModel("random", 1, directory.path(), options);
  if (!model.ok()) std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
  SLUICE_CHECK(model.ok());
  held->model = *std::move(model);
  return {held, held->model.get()};
}

}  // namespace sluice::testing
