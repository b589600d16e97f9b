#include "engine/model/families/family.h"

namespace sluice {

std::span<const ModelFamily* const> AllFamilies() {
  static constexpr const ModelFamily* kFamilies[] = {
      &kLlamaFamily,      &kQwen2Family,      &kQwen3Family,      &kMistralFamily,
      &kSmolLm3Family,    &kPhi3Family,       &kOlmo2Family,      &kOlmo3Family,
      &kGemmaFamily,      &kGemma2Family,     &kGemma3Family,     &kGptNeoXFamily,
      &kOptFamily,        &kGpt2Family,       &kBertFamily,       &kRobertaFamily,
      &kDistilBertFamily, &kMpnetFamily,      &kModernBertFamily, &kNomicBertFamily,
      &kGteFamily,        &kT5Family,         &kHstuFamily,       &kRankMixerFamily,
      &kDebertaV2Family,  &kNewFamily,        &kEuroBertFamily,   &kPhiFamily,
      &kStableLmFamily,   &kStarcoder2Family, &kGraniteFamily,    &kElectraFamily,
      &kAlbertFamily,     &kJinaBertFamily,   &kJinaV3Family,     &kMinistral3Family,
      &kMixtralFamily,    &kQwen3MoeFamily,   &kOlmoeFamily,      &kGraniteMoeFamily,
      &kErnieFamily,      &kHunyuanFamily,    &kSluiceFamily};
  return kFamilies;
}

}  // namespace sluice
