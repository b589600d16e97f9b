#include "engine/cpu/cpu_slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/size_of.h"
#include "engine/cpu/int8_layout.h"
#include "engine/cpu/layout.h"
#include "kernels/cpu/head.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/cpu/route.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {
namespace {

using kernels::kPageTokens;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Models without attention, and with attention in both directions.
TEST(CpuSlotTest, ModelsWithoutCachedKeysAllocateNoPages) {
  for (const char* name : {"families/rank_mixer_1", "families/bert_1", "families/modernbert_1"}) {
    SCOPED_TRACE(name);
    const auto model = LoadModel("model", 1, GoldenPath(name));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CpuSlot::PageBytes((*model)->config), 0);
    const auto slot = CpuSlot::Create((*model)->config, {48, 3}, 6, 100);
    ASSERT_TRUE(slot.ok()) << slot.status();
    EXPECT_EQ((*slot)->memory().kv, 0);
  }
}

// Poison keeps the positions of the batch's pages that earlier steps wrote, and all pages outside
// the batch, which may belong to other sequences.
class CpuSlotPagesTest : public ::testing::TestWithParam<KvType> {};

TEST_P(CpuSlotPagesTest, PoisonKeepsOnlyTheHistoryInTheBatchsPages) {
  ModelConfig config = TinyConfig(2);
  config.kv_dtype = GetParam();
  const Bucket largest{48, 3};
  constexpr int64_t kArenaFloats = 100;
  auto slot = CpuSlot::Create(config, largest, 6, kArenaFloats);
  ASSERT_TRUE(slot.ok());
  const int32_t pages = (*slot)->pages();
  ASSERT_EQ(pages, 6);
  const std::vector<float> ones(static_cast<size_t>(config.head_dim), 1.0f);
  const auto for_slots = [&](const auto& visit) {
    for (int32_t layer = 0; layer < config.layers; ++layer) {
      for (int64_t i = 0; i < int64_t{pages} * kPageTokens; ++i) {
        for (int32_t head = 0; head < config.kv_heads; ++head) {
          visit((*slot)->kv_layer(layer), i, head);
        }
      }
    }
  };
  for_slots([&](const kernels::KvLayer& kv, int64_t i, int32_t head) {
    StoreKey(kv, i, head, ones.data());
    StoreValue(kv, i, head, ones.data());
  });

  // Before the step, all of page 4 and three positions of page 1 are live; the other sequence has
  // no live position.
  const std::vector<int32_t> tokens(8, 0), continued = {4, 1}, fresh = {3};
  StepBatch batch(48, 3, 40, kPageTokens);
  const StepSequence sequences[] = {{kPageTokens + 3, 2, tokens.data(), continued.data()},
                                    {0, 8, tokens.data(), fresh.data()}};
  batch.Assign(sequences, {}, RowOrder::kSequenceMajor);
  (*slot)->Bind(nullptr, /*arena_floats=*/1, batch);
  (*slot)->Poison();

  const auto live = [](int32_t page, int64_t token) {
    return (page != 1 && page != 3) || (page == 1 && token < 3);
  };
  for_slots([&](const kernels::KvLayer& kv, int64_t i, int32_t head) {
    const bool poisoned = !live(static_cast<int32_t>(i / kPageTokens), i % kPageTokens);
    for (int32_t d = 0; d < config.head_dim; ++d) {
      ASSERT_EQ(std::isnan(KeyAt(kv, i, head, d)), poisoned) << i << " " << d;
      ASSERT_EQ(std::isnan(ValueAt(kv, i, head, d)), poisoned) << i << " " << d;
    }
  });
  for (int64_t i = 0; i < kArenaFloats; ++i) EXPECT_TRUE(std::isnan((*slot)->arena()[i]));
}
// A page's first positions are copied; the positions after them stay poisoned.
TEST_P(CpuSlotPagesTest, PageCopiesCopyOnlyTheFirstPositions) {
  ModelConfig config = TinyConfig(2);
  config.kv_dtype = GetParam();
  auto slot = CpuSlot::Create(config, {48, 3}, 6, 100);
  ASSERT_TRUE(slot.ok()) << slot.status();
  std::mt19937 random(7);
  std::vector<float> row(static_cast<size_t>(config.head_dim));
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const kernels::KvLayer kv = (*slot)->kv_layer(layer);
    for (int64_t i = 0; i < 6 * kPageTokens; ++i) {
      for (int32_t head = 0; head < config.kv_heads; ++head) {
        for (const auto store : {kernels::StoreKey, kernels::StoreValue}) {
          for (float& x : row) x = std::normal_distribution<float>()(random);
          store(kv, i, head, row.data());
        }
      }
    }
  }
  constexpr int32_t kCopied = 5;
  const std::vector<int32_t> tokens(8, 0), pages = {4, 1};
  StepBatch batch(48, 3, 40, kPageTokens);
  const StepSequence sequence{.first_position = kPageTokens + kCopied,
                              .count = 2,
                              .tokens = tokens.data(),
                              .pages = pages.data(),
                              .copied_page = 2};
  batch.Assign({&sequence, 1}, {}, RowOrder::kSequenceMajor);
  (*slot)->Bind(nullptr, /*arena_floats=*/1, batch);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const kernels::KvLayer kv = (*slot)->kv_layer(layer);
    std::ranges::fill(row, kNaN);
    for (int32_t i = 0; i < kPageTokens; ++i) {
      for (int32_t head = 0; head < config.kv_heads; ++head) {
        kernels::StoreKey(kv, kPageTokens + i, head, row.data());
        kernels::StoreValue(kv, kPageTokens + i, head, row.data());
      }
    }
  }
  kernels::ThreadPool pool(2);
  (*slot)->CopyPages(&pool);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const kernels::KvLayer kv = (*slot)->kv_layer(layer);
    for (int32_t i = 0; i < kPageTokens; ++i) {
      for (int32_t head = 0; head < config.kv_heads; ++head) {
        for (int32_t d = 0; d < config.head_dim; ++d) {
          for (const auto at : {kernels::KeyAt, kernels::ValueAt}) {
            const float copied = at(kv, kPageTokens + i, head, d);
            const float original = at(kv, 2 * kPageTokens + i, head, d);
            ASSERT_TRUE(i < kCopied ? copied == original : std::isnan(copied))
                << layer << " " << i << " " << head << " " << d;
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, CpuSlotPagesTest,
                         ::testing::Values(KvType::kF32, KvType::kBF16, KvType::kInt8),
                         [](const auto& param) { return std::string(NameOf(param.param)); });

// A page of int8 has a scale in f32 for each head, position, and key or value.
TEST(CpuSlotTest, TypesOfPagesTakeTheirBytes) {
  ModelConfig config = TinyConfig(2);
  const int64_t numbers = 2 * config.layers * config.kv_heads * kPageTokens;
  const auto bytes = [&](KvType type) {
    config.kv_dtype = type;
    return CpuSlot::PageBytes(config);
  };
  EXPECT_EQ(bytes(KvType::kF32), numbers * config.head_dim * 4);
  EXPECT_EQ(bytes(KvType::kBF16), numbers * config.head_dim * 2);
  EXPECT_EQ(bytes(KvType::kInt8), numbers * (config.head_dim + 4));
}

TEST(CpuSlotTest, LayersDoNotShareMemory) {
  const ModelConfig config = TinyConfig(3);
  auto slot = CpuSlot::Create(config, {16, 1}, 2, 16);
  ASSERT_TRUE(slot.ok());
  const int64_t half = (*slot)->pages() * (*slot)->kv_layer(0).page_bytes();
  const auto* next = static_cast<const std::byte*>((*slot)->kv_layer(0).k);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    EXPECT_EQ((*slot)->kv_layer(layer).k, next);
    EXPECT_EQ((*slot)->kv_layer(layer).v, next + half);
    next += 2 * half;
  }
  EXPECT_EQ((*slot)->memory().activation_room, 16 * int64_t{sizeof(float)});
  EXPECT_EQ((*slot)->memory().kv, 3 * 2 * half);
}

TEST(CpuSlotTest, TrimFreesMemoryThatNoRecentStepUsed) {
  constexpr int64_t kMiB = int64_t{1} << 20, kFloatsOfMiB = kMiB / 4;
  auto created = CpuSlot::Create(TinyConfig(1), {16, 1}, 2, 32 * kFloatsOfMiB);
  ASSERT_TRUE(created.ok());
  CpuSlot& slot = **created;
  const auto held_mib = [&] { return slot.memory().activations / kMiB; };
  const std::vector<int32_t> tokens(8, 0), pages = {1};
  StepBatch batch(48, 3, 40, kPageTokens);
  const StepSequence sequence = {0, 8, tokens.data(), pages.data()};
  batch.Assign({&sequence, 1}, {}, RowOrder::kSequenceMajor);
  const auto run = [&](int64_t mib) {
    slot.Bind(nullptr, mib * kFloatsOfMiB, batch);
    std::fill_n(slot.arena(), mib * kFloatsOfMiB, 1.0f);
  };
  EXPECT_EQ(held_mib(), 0);
  EXPECT_EQ(slot.memory().activation_room, 32 * kMiB);
  run(32);
  run(3);
  EXPECT_EQ(held_mib(), 32);
  EXPECT_TRUE(slot.Trim()) << "the largest step was since the start";
  EXPECT_EQ(held_mib(), 32);
  run(3);
  EXPECT_TRUE(slot.Trim());
  EXPECT_EQ(held_mib(), 3);
  EXPECT_EQ(slot.arena()[3 * kFloatsOfMiB - 1], 1.0f);
  EXPECT_EQ(slot.arena()[4 * kFloatsOfMiB], 0.0f) << "new memory of the system";
  EXPECT_EQ(slot.arena()[32 * kFloatsOfMiB - 1], 0.0f);
  EXPECT_FALSE(slot.Trim()) << "nothing ran since";
  EXPECT_EQ(held_mib(), 0);
  EXPECT_EQ(slot.arena()[0], 0.0f);
}

TEST(LayoutTest, RegionsAreDisjointAlignedAndGrow) {
  const auto model = RandomModel(TinyConfig(1), 2);
  kernels::ThreadPool pool(3);
  const kernels::Context context = {kernels::Profile::kPortableF32, &pool};
  ArenaLayout last{};
  for (int32_t tokens : {1, 7, 16, 100}) {
    const ArenaLayout layout = LayOutArena(*model, {tokens, 4}, context, {});
    int64_t end = 0;
    for (size_t b = 0; b < layout.buffers.size(); ++b) {
      EXPECT_EQ(layout.buffers[b] % 16, 0);
      EXPECT_GE(layout.buffers[b], end);
      end = layout.buffers[b] + tokens * model->graph.buffers[b].width;
    }
    EXPECT_GE(layout.attention_scratch, end);
    EXPECT_GT(layout.head_rows, layout.attention_scratch);
    EXPECT_GE(layout.head_logits, layout.head_rows + kernels::kHeadRows * 32);
    EXPECT_GE(layout.head_scratch, layout.head_logits + kLogitRows * 61);
    EXPECT_GE(layout.sample_scratch, layout.head_scratch + kernels::HeadScratch(61, 3) / 4);
    EXPECT_GE(layout.floats, layout.sample_scratch + 3 * layout.sample_stride);
    EXPECT_GE(layout.floats, last.floats);
    last = layout;
  }
}

TEST(LayoutTest, QuantisedRowsHaveRoom) {
  kernels::ThreadPool pool(1);
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    ModelConfig config = TinyConfig(1);
    config.quantization.projections = quantization;
    const auto model = RandomModel(config, 2, kernels::DType::kBF16);
    for (const kernels::Profile profile : kernels::kProfiles) {
      const ArenaLayout layout = LayOutArena(*model, {30, 4}, {profile, &pool}, {});
      EXPECT_GE((layout.attention_scratch - layout.quantized) * kSizeOf<float>,
                kernels::QuantizedRows::Bytes(profile, 30, config.intermediate_size,
                                              quantization == Quantization::kInt4))
          << kernels::ProfileName(profile) << ", " << NameOf(quantization);
    }
  }
}

// Each token has several rows of experts, which are also quantised.
TEST(LayoutTest, RowsOfExpertsHaveRoom) {
  ModelConfig config = TinySluiceConfig(1);
  config.experts = {.count = 7, .chosen = 3, .width = 50, .layers = {true}};
  config.quantization.projections = Quantization::kInt8;
  const auto model = RandomModel(config, 2, kernels::DType::kBF16);
  kernels::ThreadPool pool(1);
  const kernels::Context context = {kernels::BestProfile(), &pool};
  const ArenaLayout layout = LayOutArena(*model, {30, 4}, context, {});
  const std::vector<GraphBuffer>& buffers = model->graph.buffers;
  int experts = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t end = i + 1 < buffers.size() ? layout.buffers[i + 1] : layout.quantized;
    EXPECT_GE(end - layout.buffers[i], 30 * buffers[i].rows * buffers[i].width) << buffers[i].name;
    experts += buffers[i].rows == 3 ? 1 : 0;
  }
  EXPECT_EQ(experts, 4);  // the copies of rows, gate, up and the results
  EXPECT_GE((layout.routes - layout.quantized) * kSizeOf<float>,
            kernels::QuantizedRows::Bytes(context.profile, 90, 50, /*sums=*/false));
  EXPECT_GE((layout.attention_scratch - layout.routes) * kSizeOf<float>,
            kernels::Routes::Bytes({.rows = 30, .experts = 7, .chosen = 3}));
}

}  // namespace
}  // namespace sluice::testing
