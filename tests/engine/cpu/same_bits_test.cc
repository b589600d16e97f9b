// The answers of golden models have the bits that were recorded on x86-64 under cpu-avx2-f32.
// cpu-arm64-f32 has to give the same bits, with floats, int8 and int4, and with every type of
// pages.
//
// tests/goldens/bits.txt has a digest for each model and precision. If SLUICE_RECORD_BITS names a
// file, the test appends its digests there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cpu/profile.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {
namespace {

using kernels::Profile;

// Returns the profile of this architecture whose vectors have eight lanes.
std::optional<Profile> ProfileOfEightLanes() {
  for (const Profile profile : {Profile::kAvx2F32, Profile::kArm64F32}) {
    if (ProfileSupported(profile)) return profile;
  }
  return std::nullopt;
}

// A hash of bytes: FNV-1a.
class Digest {
 public:
  template <typename T>
  void Add(const std::vector<T>& values) {
    AddBytes(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(T));
  }
  template <typename T>
  void Add(const T& value) {
    AddBytes(reinterpret_cast<const unsigned char*>(&value), sizeof(T));
  }
  uint64_t value() const { return value_; }

 private:
  void AddBytes(const unsigned char* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001b3;
  }
  uint64_t value_ = 0xcbf29ce484222325;
};

uint64_t DigestOf(const std::vector<Answer>& answers) {
  Digest digest;
  for (const Answer& answer : answers) {
    digest.Add(answer.logits);
    digest.Add(answer.states);
    digest.Add(answer.state_sum);
    for (const kernels::SampleResult& next : answer.next) {
      digest.Add(next.token);
      digest.Add(next.logprob);
    }
    digest.Add(answer.xsa_cos_sim);
    digest.Add(answer.xsa_proj_frac);
  }
  return digest.value();
}

// Returns the prompts of a golden.
std::vector<Prompt> PromptsOf(const GoldenFile& golden, int64_t input_width) {
  const std::vector<int32_t> ids = golden.Ints("input_ids"), lengths = golden.Ints("lengths");
  std::vector<int32_t> offsets(lengths.size());
  if (golden.Has("position_offsets")) offsets = golden.Ints("position_offsets");
  std::vector<float> inputs;
  if (golden.Has("inputs")) inputs = golden.Floats("inputs");
  std::vector<Prompt> prompts;
  int64_t first = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t past = first + lengths[s];
    prompts.push_back(
        {.tokens = {ids.begin() + first, ids.begin() + past}, .position_offset = offsets[s]});
    if (!inputs.empty()) {
      prompts.back().inputs.assign(inputs.begin() + first * input_width,
                                   inputs.begin() + past * input_width);
    }
    first = past;
  }
  return prompts;
}

// A precision of projections, and the type of pages that it is tried with.
struct Precision {
  const char* name;
  Quantization projections;
  kernels::KvType pages;
};
constexpr Precision kPrecisions[] = {{"f32", Quantization::kNone, kernels::KvType::kF32},
                                     {"int8", Quantization::kInt8, kernels::KvType::kBF16},
                                     {"int4", Quantization::kInt4, kernels::KvType::kInt8}};

std::map<std::string, std::string> RecordedDigests() {
  std::ifstream file(GoldenPath("bits.txt"));
  std::map<std::string, std::string> digests;
  for (std::string model, precision, digest; file >> model >> precision >> digest;) {
    digests[model + " " + precision] = digest;
  }
  return digests;
}

class SameBitsTest : public ::testing::TestWithParam<std::tuple<std::string, Precision>> {};

TEST_P(SameBitsTest, AnswersHaveTheRecordedBits) {
  const std::optional<Profile> profile = ProfileOfEightLanes();
  if (!profile) GTEST_SKIP() << "not applicable: needs AVX2";
  const auto& [name, precision] = GetParam();
  ModelOptions options;
  if (precision.projections != Quantization::kNone) {
    options = {.quantization = QuantizationConfig{.projections = precision.projections},
               .kv_dtype = precision.pages};
  }
  const auto model = LoadModel(name, 1, GoldenPath(name), options);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<Prompt> prompts = PromptsOf(
      GoldenFile(GoldenPath(name + "/expected.safetensors")), (*model)->config.input_width);
  Bucket bucket{0, static_cast<int32_t>(prompts.size())};
  for (const Prompt& prompt : prompts) bucket.tokens += static_cast<int32_t>(prompt.tokens.size());
  Runner runner(
      *model,
      CpuOptions{.threads = 2, .profile = std::string(ProfileName(*profile)), .poison = true},
      bucket);
  const std::string digest = std::to_string(DigestOf(runner.Run(prompts, bucket)));
  const std::string key = name + " " + precision.name;
  if (const char* const record = std::getenv("SLUICE_RECORD_BITS")) {
    std::ofstream(record, std::ios::app) << key << " " << digest << "\n";
    return;
  }
  const std::map<std::string, std::string> recorded = RecordedDigests();
  ASSERT_TRUE(recorded.contains(key))
      << key << " is not in tests/goldens/bits.txt: record the file again with "
      << "SLUICE_RECORD_BITS, see tests/goldens/README.md";
  EXPECT_EQ(digest, recorded.at(key));
}

std::vector<std::string> Goldens() {
  std::vector<std::string> names = {"llama_mha",
                                    "llama_gqa",
                                    "llama_mqa",
                                    "llama_headdim",
                                    "llama_bias",
                                    "llama_rope3",
                                    "llama_bf16",
                                    "llama_f16",
                                    "llama_sharded",
                                    "llama_newconfig",
                                    "sluice_pw_v",
                                    "sluice_pw_qkvo",
                                    "sluice_xsa",
                                    "sluice_xsa_squared_gate",
                                    "sluice_all",
                                    "gpt2_small",
                                    "gpt2_bare",
                                    "gpt2_headless",
                                    "bert_mlm",
                                    "bert_gamma",
                                    "bert_headless",
                                    "qwen2_gqa",
                                    "qwen2_tied",
                                    "sasrec_start",
                                    "sasrec_end",
                                    "sasrec_per_position",
                                    "encoder_dense_input",
                                    "encoder_position_input",
                                    "xsa_lm_small",
                                    "xsa_lm_deep",
                                    "deberta_long"};
  for (const std::string& family : FamilyGoldens()) names.push_back("families/" + family);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, SameBitsTest,
                         ::testing::Combine(::testing::ValuesIn(Goldens()),
                                            ::testing::ValuesIn(kPrecisions)),
                         [](const auto& test) {
                           std::string name = std::get<0>(test.param);
                           std::replace(name.begin(), name.end(), '/', '_');
                           return TestName(name + "_" + std::get<1>(test.param).name);
                         });

}  // namespace
}  // namespace sluice::testing
