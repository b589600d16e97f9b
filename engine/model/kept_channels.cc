#include "engine/model/kept_channels.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/model/model.h"

namespace sluice {
namespace {

int32_t ChannelAt(const Tensor& channels, int64_t i) {
  int32_t channel;
  std::memcpy(&channel, static_cast<const char*>(channels.data) + i * kSizeOf<int32_t>,
              sizeof(channel));
  return channel;
}

}  // namespace

std::string NameOfKept(const std::string& weight) { return weight + "_kept"; }
std::string NameOfKeptChannels(const std::string& weight) { return weight + "_kept_channels"; }

absl::StatusOr<KeptChannels> FindKept(const Checkpoint& checkpoint, const std::string& weight,
                                      const std::vector<int64_t>& shape) {
  const std::string name = NameOfKeptChannels(weight);
  if (!checkpoint.Lists(name) && !checkpoint.Lists(NameOfKept(weight))) return KeptChannels();
  const int64_t out = shape[0], in = shape[1];
  const auto found = checkpoint.tensors().find(name);
  const int64_t count = found == checkpoint.tensors().end() ? in : found->second.elements();
  SLUICE_ASSIGN_OR_RETURN(const Tensor words, checkpoint.FindWords(name, {count}));
  if (count < 1 || count > in) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has ", count, " channels, must have 1 to ", in));
  }
  KeptChannels kept;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t channel = ChannelAt(words, i);
    if (channel >= in || channel <= (i == 0 ? -1 : kept.channels.back())) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " has channel ", channel,
                                                     "; channels must ascend within [0, ", in - 1,
                                                     "]"));
    }
    kept.channels.push_back(channel);
  }
  SLUICE_ASSIGN_OR_RETURN(kept.weights, checkpoint.Find(NameOfKept(weight), {out, count}));
  return kept;
}

std::vector<int32_t> KeptChannelsOf(const Model& model, const LinearOp& op) {
  if (!model.checkpoint.IsInt8(op.weight.name) || op.weight.shape.size() != 2) return {};
  auto kept = FindKept(model.checkpoint, op.weight.name, op.weight.shape);
  if (!kept.ok()) return {};
  return std::move(kept->channels);
}

}  // namespace sluice
