#include "engine/model/stored_int4.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ceil_div.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

using Format = StoredQuantization::Format;

constexpr int64_t kPerWord = 8, kBits = 4, kMaxGroup = 128;
// The column of each code of a word of AWQ.
constexpr int64_t kAwqOrder[kPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};
// Version 1 of GPTQ subtracts this from each word of zero points. A zero point of 0 then borrows
// from the next code.
constexpr uint32_t kGptqOffset = 0x11111111;

std::string LayerOf(const std::string& weight) {
  constexpr absl::string_view kSuffix = ".weight";
  return absl::EndsWith(weight, kSuffix) ? weight.substr(0, weight.size() - kSuffix.size())
                                         : weight;
}

uint32_t WordOf(const Tensor& words, int64_t i) {
  uint32_t word;
  std::memcpy(&word, static_cast<const char*>(words.data) + i * sizeof(word), sizeof(word));
  return word;
}

// Adds `offset` to the word first.
uint8_t CodeOf(const Tensor& words, int64_t word, int64_t place, uint32_t offset = 0) {
  return (WordOf(words, word) + offset) >> (kBits * place) & 15;
}

// The tensors of a layer.
struct Layer {
  Tensor codes, scales, zeros;
  int64_t out, in, groups;
};

// Refuses rows whose groups are not runs of neighbours.
absl::Status CheckOrder(const Checkpoint& checkpoint, const std::string& name, int64_t in,
                        int64_t group) {
  if (!checkpoint.Has(name)) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const Tensor order, checkpoint.FindWords(name, {in}));
  for (int64_t i = 0; i < in; ++i) {
    if (WordOf(order, i) == static_cast<uint32_t>(i / group)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " puts row ", i, " into group ", WordOf(order, i),
                     ": groups of rows that are not neighbours (act-order) are not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Layer> FindPacked(const Checkpoint& checkpoint, const std::string& layer, bool zeros,
                                 int64_t out, int64_t in, int64_t group) {
  Layer found = {
      .codes = {}, .scales = {}, .zeros = {}, .out = out, .in = in, .groups = in / group};
  SLUICE_ASSIGN_OR_RETURN(found.codes,
                          checkpoint.FindWords(layer + ".weight_packed", {out, in / kPerWord}));
  SLUICE_ASSIGN_OR_RETURN(found.scales,
                          checkpoint.Find(layer + ".weight_scale", {out, found.groups}));
  if (zeros) {
    SLUICE_ASSIGN_OR_RETURN(found.zeros, checkpoint.FindWords(layer + ".weight_zero_point",
                                                              {out / kPerWord, found.groups}));
  }
  SLUICE_RETURN_IF_ERROR(CheckOrder(checkpoint, layer + ".weight_g_idx", in, group));
  return found;
}

absl::StatusOr<Layer> FindByColumns(const Checkpoint& checkpoint, const std::string& layer,
                                    bool awq, int64_t out, int64_t in, int64_t group) {
  Layer found = {
      .codes = {}, .scales = {}, .zeros = {}, .out = out, .in = in, .groups = in / group};
  const std::vector<int64_t> shape =
      awq ? std::vector<int64_t>{in, out / kPerWord} : std::vector<int64_t>{in / kPerWord, out};
  SLUICE_ASSIGN_OR_RETURN(found.codes, checkpoint.FindWords(layer + ".qweight", shape));
  SLUICE_ASSIGN_OR_RETURN(found.scales, checkpoint.Find(layer + ".scales", {found.groups, out}));
  SLUICE_ASSIGN_OR_RETURN(found.zeros,
                          checkpoint.FindWords(layer + ".qzeros", {found.groups, out / kPerWord}));
  if (!awq) SLUICE_RETURN_IF_ERROR(CheckOrder(checkpoint, layer + ".g_idx", in, group));
  return found;
}

// Returns the code of row `i` of column `c`.
uint8_t CodeAt(const Layer& layer, Format format, int64_t c, int64_t i) {
  switch (format) {
    case Format::kAwq:
      return CodeOf(layer.codes, i * (layer.out / kPerWord) + c / kPerWord,
                    std::find(kAwqOrder, kAwqOrder + kPerWord, c % kPerWord) - kAwqOrder);
    case Format::kGptq:
    case Format::kGptqV2:
      return CodeOf(layer.codes, i / kPerWord * layer.out + c, i % kPerWord);
    default:
      return CodeOf(layer.codes, c * (layer.in / kPerWord) + i / kPerWord, i % kPerWord);
  }
}

uint8_t ZeroAt(const Layer& layer, Format format, int64_t c, int64_t g) {
  const int64_t by_group = g * (layer.out / kPerWord) + c / kPerWord;
  switch (format) {
    case Format::kAwq:
      return CodeOf(layer.zeros, by_group,
                    std::find(kAwqOrder, kAwqOrder + kPerWord, c % kPerWord) - kAwqOrder);
    case Format::kGptq:
      return CodeOf(layer.zeros, by_group, c % kPerWord, kGptqOffset);
    case Format::kGptqV2:
      return CodeOf(layer.zeros, by_group, c % kPerWord);
    default:
      return CodeOf(layer.zeros, c / kPerWord * layer.groups + g, c % kPerWord);
  }
}

}  // namespace

bool IsStoredInInt4(const Checkpoint& checkpoint, const StoredQuantization& stored,
                    const std::string& weight) {
  if (stored.format == Format::kNone || stored.format == Format::kInt8) return false;
  return checkpoint.Has(LayerOf(weight) +
                        (stored.format == Format::kPacked ? ".weight_packed" : ".qweight"));
}

absl::StatusOr<StoredInt4> ReadStoredInt4(const Checkpoint& checkpoint,
                                          const StoredQuantization& stored,
                                          const std::string& weight, int64_t out, int64_t in,
                                          int64_t first, int64_t rows) {
  const int64_t group = stored.group == 0 ? in : stored.group;
  if (in % group != 0 || in % kPerWord != 0 || out % kPerWord != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", weight, " of shape [", out, ", ", in,
                                                   "] cannot be stored in ", "words of ", kPerWord,
                                                   " codes and groups of ", group));
  }
  const std::string layer = LayerOf(weight);
  const bool packed = stored.format == Format::kPacked;
  SLUICE_ASSIGN_OR_RETURN(
      const Layer found,
      packed ? FindPacked(checkpoint, layer, stored.zeros, out, in, group)
             : FindByColumns(checkpoint, layer, stored.format == Format::kAwq, out, in, group));
  StoredInt4 read = {.group = stored.group == 0 ? kMaxGroup : std::min(group, kMaxGroup),
                     .codes = {},
                     .scales = {},
                     .zeros = {}};
  const int64_t repeats = CeilDiv(group, read.group);
  read.codes.reserve(rows * in);
  for (int64_t c = first; c < first + rows; ++c) {
    for (int64_t i = 0; i < in; ++i) read.codes.push_back(CodeAt(found, stored.format, c, i));
    for (int64_t g = 0; g < found.groups; ++g) {
      const int64_t scale = packed ? c * found.groups + g : g * out + c;
      read.scales.insert(read.scales.end(), repeats,
                         kernels::LoadAsFloat(found.scales.data, found.scales.dtype, scale));
      if (!stored.zeros) continue;
      read.zeros.insert(read.zeros.end(), repeats, ZeroAt(found, stored.format, c, g));
    }
  }
  return read;
}

}  // namespace sluice
