#include "engine/cuda/algorithm_table.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/json_reader.h"
#include "base/read_file.h"
#include "base/stable_hash.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int kMaxDepth = 5;
constexpr int64_t kMaxTableWidth = 1 << 24;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxNoteBytes = 256;
constexpr size_t kWordDigits = 16;

DenseShape ReadShape(ObjectReader* layer) {
  DenseShape shape = {};
  shape.k = layer->Integer("k", 1, kMaxTableWidth);
  shape.n = layer->Integer("n", 1, kMaxTableWidth);
  shape.type = layer->Find("dtype") == nullptr ? DenseType::kBF16 : layer->Enum<DenseType>("dtype");
  shape.bias = layer->Boolean("bias", false);
  shape.accumulate = layer->Boolean("accumulate", false);
  shape.head = layer->Boolean("head", false);
  shape.activation = layer->Enum<DenseActivation>("activation");
  return shape;
}

// Reads words of 16 digits, the first word first.
DenseAlgorithm ReadAlgorithm(ObjectReader* layer) {
  DenseAlgorithm algorithm = {};
  const size_t digits = algorithm.size() * kWordDigits;
  const std::string text = layer->String("algorithm", digits);
  bool good = text.size() == digits;
  for (size_t i = 0; good && i < algorithm.size(); ++i) {
    const char* const begin = text.data() + i * kWordDigits;
    const auto [end, error] = std::from_chars(begin, begin + kWordDigits, algorithm[i], 16);
    good = error == std::errc() && end == begin + kWordDigits;
  }
  if (!good) layer->Fail("algorithm", absl::StrCat("must be ", digits, " hexadecimal digits"));
  return algorithm;
}

// Reads the algorithms of the classes of a layer with the name `name`.
std::map<int32_t, DenseAlgorithm> ReadClasses(ObjectReader* layer, const std::string& name,
                                              const DenseShape& shape, absl::Status* status) {
  std::map<int32_t, DenseAlgorithm> of_classes;
  const json* const list = layer->Find("classes");
  if (list == nullptr) return of_classes;
  if (!list->is_array() || list->size() > std::size(kClassEnds)) {
    layer->Fail("classes", absl::StrCat("must be a list of at most ", std::size(kClassEnds)));
    return of_classes;
  }
  for (size_t i = 0; i < list->size() && status->ok(); ++i) {
    const std::string place = absl::StrCat("classes[", i, "]");
    if (!(*list)[i].is_object()) {
      layer->Fail(place, "is not an object");
      break;
    }
    ObjectReader one((*list)[i], absl::StrCat(name, ".", place, "."), status);
    one.AllowOnly({"rows", "algorithm"});
    const auto rows = static_cast<int32_t>(one.Integer("rows", 1, kMaxDenseRows));
    const DenseAlgorithm algorithm = ReadAlgorithm(&one);
    if (!status->ok()) break;
    const std::vector<RowClass> classes = ClassesOf(shape);
    const bool known =
        std::ranges::any_of(std::span(classes).first(classes.size() - 1),
                            [rows](const RowClass& each) { return each.last == rows; });
    if (!known) {
      one.Fail("rows", "must be the last number of rows of a class, and not of the largest one");
    } else if (!of_classes.try_emplace(rows, algorithm).second) {
      one.Fail("rows", "names a class that an earlier entry names");
    }
  }
  return of_classes;
}

std::string Digits(const DenseAlgorithm& algorithm) {
  std::string digits;
  for (const uint64_t word : algorithm) absl::StrAppend(&digits, absl::Hex(word, absl::kZeroPad16));
  return digits;
}

std::string NameFrom(ObjectReader* root, const std::string& key) {
  std::string name = root->String(key, kMaxNameBytes);
  bool printable = !name.empty();
  for (const char c : name) printable &= absl::ascii_isprint(static_cast<unsigned char>(c));
  if (!printable) root->Fail(key, "must be printable ASCII, and not empty");
  return name;
}

}  // namespace

absl::StatusOr<AlgorithmTable> AlgorithmTable::Parse(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const json document, ParseJson(text, kMaxDepth));
  if (!document.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  absl::Status status;
  ObjectReader root(document, "", &status);
  root.AllowOnly({"sluice_algorithms", "gpu", "library", "layers"});
  root.Integer("sluice_algorithms", kFormat, kFormat);
  AlgorithmTable table(NameFrom(&root, "gpu"), NameFrom(&root, "library"));
  const json* const layers = root.Find("layers");
  if (layers == nullptr || !layers->is_array() || layers->size() > kMaxTableLayers) {
    root.Fail("layers", absl::StrCat("must be a list of at most ", kMaxTableLayers));
  }
  SLUICE_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < layers->size() && status.ok(); ++i) {
    const std::string name = absl::StrCat("layers[", i, "]");
    if (!(*layers)[i].is_object()) {
      root.Fail(name, "is not an object");
      break;
    }
    ObjectReader layer((*layers)[i], name + ".", &status);
    layer.AllowOnly({"k", "n", "dtype", "bias", "accumulate", "head", "activation", "algorithm",
                     "classes", "note"});
    const DenseShape shape = ReadShape(&layer);
    DenseAlgorithms algorithms = {.reference = ReadAlgorithm(&layer)};
    if (!status.ok()) break;
    algorithms.of_classes = ReadClasses(&layer, name, shape, &status);
    std::string note = layer.String("note", kMaxNoteBytes, "");
    if (!table.Add(shape, algorithms, std::move(note)).ok()) {
      root.Fail(name, "has the same shape as an earlier layer");
    }
  }
  SLUICE_RETURN_IF_ERROR(status);
  return table;
}

absl::Status AlgorithmTable::Add(const DenseShape& shape, const DenseAlgorithms& algorithms,
                                 std::string note) {
  if (layers_.try_emplace(shape, Layer{algorithms, std::move(note)}).second) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(ToString(shape));
}

const DenseAlgorithms* AlgorithmTable::Find(const DenseShape& shape) const {
  const auto found = layers_.find(shape);
  return found == layers_.end() ? nullptr : &found->second.algorithms;
}

std::string AlgorithmTable::Render(bool notes, int indent) const {
  json layers = json::array();
  for (const auto& [shape, layer] : layers_) {
    layers.push_back({{"k", shape.k},
                      {"n", shape.n},
                      {"dtype", NameOf(shape.type)},
                      {"bias", shape.bias},
                      {"accumulate", shape.accumulate},
                      {"head", shape.head},
                      {"activation", NameOf(shape.activation)},
                      {"algorithm", Digits(layer.algorithms.reference)}});
    for (const auto& [rows, algorithm] : layer.algorithms.of_classes) {
      layers.back()["classes"].push_back({{"rows", rows}, {"algorithm", Digits(algorithm)}});
    }
    if (notes) layers.back()["note"] = layer.note;
  }
  const json document = {{"sluice_algorithms", kFormat},
                         {"gpu", gpu_},
                         {"library", library_},
                         {"layers", std::move(layers)}};
  return document.dump(indent, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

std::string AlgorithmTable::Digest() const {
  StableHash hash;
  hash.Add(Render(/*notes=*/false, /*indent=*/-1));
  const uint64_t folded = hash.value() ^ hash.value() >> 32;  // the low bits by themselves are poor
  return absl::StrCat(absl::Hex(static_cast<uint32_t>(folded), absl::kZeroPad8));
}

std::string AlgorithmTable::Text() const { return Render(/*notes=*/true, /*indent=*/1) + "\n"; }

std::string ToString(const DenseShape& shape) {
  std::string text = absl::StrCat(
      shape.k, " x ", shape.n, " ", std::string(NameOf(shape.type)), shape.bias ? ", bias" : "",
      shape.accumulate ? ", accumulate" : "", shape.head ? ", head" : "");
  if (shape.activation != DenseActivation::kNone) {
    absl::StrAppend(&text, ", ", std::string(NameOf(shape.activation)));
  }
  return text;
}

absl::StatusOr<std::optional<AlgorithmTable>> ChooseTable(const std::string& gpu,
                                                          const std::string& library,
                                                          const std::string& path,
                                                          std::span<const std::string_view> texts) {
  if (path.empty()) {
    for (const std::string_view text : texts) {
      absl::StatusOr<AlgorithmTable> table = AlgorithmTable::Parse(text);
      if (!table.ok()) return ErrorAt("a committed table of algorithms", table.status());
      if (table->gpu() == gpu && table->library() == library) return *std::move(table);
    }
    return std::nullopt;
  }
  const std::string file = absl::StrCat("cuda.algorithms: ", path);
  const absl::StatusOr<std::string> text = ReadFile(path, AlgorithmTable::kMaxBytes);
  if (!text.ok()) return ErrorAt("cuda.algorithms", text.status());
  absl::StatusOr<AlgorithmTable> table = AlgorithmTable::Parse(*text);
  if (!table.ok()) return ErrorAt(file, table.status());
  if (table->gpu() == gpu && table->library() == library) return *std::move(table);
  return absl::FailedPreconditionError(absl::StrCat(
      file, ": it is for ", table->gpu(), " with ", table->library(), ", not for ", gpu, " with ",
      library, "; write a table with gpu_bench tune, or leave the option empty"));
}

}  // namespace sluice
