// Finds labelled parts of a text, from the states of its labels and words (GLiNER, arXiv
// 2311.08526, with spans of the kind markerV0):
//   s = start(w_b), e = end(w_e)                  each of 2 layers, like span()
//   score = sigmoid(label(l) . span(relu([s, e])))
// for the words b <= e of a part and a label l; see engine/rows/label_head.h. An LSTM in both
// directions may follow the words. With a gate, a row whose gate's state has the largest logit in
// the first class has no parts. The states of labels are states of the row or, if its rows have no
// labels, vectors of Model::labels.
//
// The first layer of span() is the sum of a product of s and a product of e, which are computed
// once for each word. Its last layer is multiplied with the labels first, because there are fewer
// labels than features.
//
// A row's results depend on no other row: they have the same bits in every batch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/output_heads.h"
#include "engine/request.h"
#include "engine/rows/host_layers.h"
#include "engine/rows/label_head.h"

namespace sluice {

// Returns the candidates that may be returned together, by their first words. The best candidates
// are taken first, those with equal scores in the order of words and labels, and at most
// kMostExtracted of them. If `label_by_label`, parts of different labels may be returned together.
// Requires that candidates are within `words` words.
std::vector<ExtractedSpan> ChooseSpans(std::vector<ExtractedSpan> candidates, int64_t words,
                                       const ExtractionRules& rules, bool label_by_label);

// Immutable; thread-safe.
class SpanHead {
 public:
  // Packs the weights of the model, which must have a SpanWeights. For `profile`, see HostLayers.
  SpanHead(const Model& model, std::optional<kernels::Profile> profile);

  // Returns the most memory of a row for each of its words.
  static int64_t WordBytes(const ModelConfig& config, const ExtractionRules& rules);

  // Finds the parts of a row. `states` has the states of the gate, if there is one, of the labels
  // and then of the words, [1 + labels + words, hidden]; if it is empty, the call has no effect.
  // If rows have no labels, `states` only has those of the words, and `labels` the vectors of the
  // labels, [labels, width]. Returns false if a score is not finite.
  bool Extract(const ExtractionRules& rules, std::span<const float> labels,
               std::span<const float> states, Divide divide,
               std::vector<ExtractedSpan>* found) const;

 private:
  using Layer = HostLayers::Layer;
  using Projection = HostLayers::Projection;
  struct Lstm {
    Layer input, state;  // the bias of `input` is the sum of both
  };
  // Consecutive words with the halves of the hidden layer of span(): of those from `first` on that
  // begin parts, and of those that end parts.
  struct Block {
    int64_t first;
    Floats of_starts, of_ends;
    const Layer& labels;
    float threshold;
  };

  void RunLstm(const Lstm& lstm, bool backwards, std::span<const float> words, float* out) const;
  // Returns whether the gate's state allows parts, or nothing if its logits are not finite.
  std::optional<bool> Opens(std::span<const float> state) const;
  // Returns a layer that makes the logits of the labels from the hidden layer of span().
  Layer LabelLayer(std::span<const float> labels) const;
  // Returns `layer` of ReLU of `projection` for each word.
  Floats Halves(const Projection& projection, const Layer& layer, std::span<const float> words,
                Divide divide) const;
  // Finds the parts that begin at the words [first, end) of the block. Returns false if a score is
  // not finite.
  bool Score(const Block& block, int64_t first, int64_t end,
             std::vector<ExtractedSpan>* found) const;

  const int64_t width_, max_width_;
  const bool label_by_label_, labels_in_row_;
  const HostLayers layers_;
  const LabelHead label_;
  std::optional<Layer> projection_;
  std::vector<std::array<Lstm, 2>> lstm_;
  Projection start_, end_;
  std::optional<Projection> gate_;
  Layer of_start_, of_end_;  // the halves of the first layer of span()
  Layer of_label_;           // the last layer of span(), transposed, without bias
  Floats span_bias_;         // of the last layer of span()
};

}  // namespace sluice
