#include "kernels/cpu/attention.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kCacheLine = 16;  // floats; keeps workers off each other's cache lines

int64_t RoundUp(int64_t n, int64_t step) { return CeilDiv(n, step) * step; }

// Returns a row stride of at least `n` floats: an odd number of cache lines, so that values of
// neighbouring rows do not share a cache set.
int64_t OddLines(int64_t n) { return (CeilDiv(n, kCacheLine) | 1) * kCacheLine; }

// The offsets of all parts of the scratch memory, in floats.
struct ScratchLayout {
  int64_t record_stride;
  int64_t score_stride;
  // Within the part of a worker.
  int64_t queries;
  int64_t segment_sums;
  int64_t running;
  int64_t own_values;
  int64_t keys;  // only with keys of the step's rows: pages of one head, then the values
  int64_t values;
  int64_t page_ids;
  int64_t relative_queries;  // products of a block's rows, then those of the keys, with tables
  int64_t relative_keys;
  int64_t worker_floats;
  int64_t parts;  // after the parts of all workers
  int64_t floats;
};

// Returns the layout of pages of one KV head.
KvLayer PagesOfHead(const AttentionSizes& sizes) {
  return {nullptr, nullptr, /*kv_heads=*/1, sizes.head_dim, sizes.kv_type};
}

// Returns the row stride of products with tables of relative positions. A few distances may need
// all rows of a table, because neighbouring distances may have rows that are far apart.
int64_t RelativeStride(const AttentionSizes& sizes) {
  return sizes.relative_rows == 0 ? 0 : OddLines(sizes.relative_rows);
}

ScratchLayout LayOutScratch(const AttentionChoice& choice, const AttentionSizes& sizes) {
  ScratchLayout layout;
  layout.record_stride = RoundUp(sizes.head_dim + simd::kRecordTail, kCacheLine);
  const bool all_scores = choice.order == AttentionOrder::kTwoPass;
  const int64_t context = RoundUp(sizes.max_context, kPageTokens);
  layout.score_stride = OddLines(all_scores ? context : std::min(context, kSegmentTokens));
  layout.queries = simd::kAttentionTile * layout.score_stride;
  layout.segment_sums = layout.queries + CeilDiv(sizes.head_dim, simd::kQueryRun) *
                                             simd::kAttentionTile * simd::kQueryRun;
  layout.running = layout.segment_sums + simd::kAttentionTile * layout.record_stride;
  layout.own_values = layout.running + AttentionSchedule::MaxQueries(sizes) * layout.record_stride;
  const int64_t own_floats =
      sizes.kv_type == KvType::kF32 ? 0 : int64_t{simd::kAttentionRows} * sizes.head_dim;
  layout.keys = layout.own_values + RoundUp(own_floats, kCacheLine);
  const int64_t pages = sizes.of_rows ? CeilDiv(context, kPageTokens) : 0;
  const int64_t page_floats = PagesOfHead(sizes).page_bytes() / kSizeOf<float>;
  layout.values = layout.keys + RoundUp(pages * page_floats, kCacheLine);
  layout.page_ids = layout.values + RoundUp(pages * page_floats, kCacheLine);
  layout.relative_queries = layout.page_ids + RoundUp(pages, kCacheLine);
  const int64_t columns = RelativeStride(sizes);
  layout.relative_keys = layout.relative_queries + simd::kAttentionRows * columns;
  layout.worker_floats = layout.relative_keys + sizes.max_context * columns;
  layout.parts = sizes.threads * layout.worker_floats;
  layout.floats =
      layout.parts + AttentionSchedule::MaxRecords(choice, sizes) * layout.record_stride;
  return layout;
}

// Returns about how many multiply-adds the scores, with the products with tables of relative
// positions, and the sums of values need.
int64_t WorkOfAttention(std::span<const AttentionSequence> sequences, const AttentionSizes& sizes,
                        int64_t tables) {
  int64_t pairs = 0;  // of a query and a key
  for (const AttentionSequence& each : sequences) {
    pairs += int64_t{each.count} * (each.first_position + each.count);
  }
  return (2 + tables) * pairs * sizes.q_heads * sizes.head_dim;
}

// Keys and values of one KV head of a sequence, copied from the step's rows to pages in a worker's
// scratch memory, and the keys' products with a table of relative positions. They stay in a near
// cache while the head's items are computed.
class HeldHead {
 public:
  // Holds nothing at first. `page_ids` has room for the pages of the longest sequence, and
  // `products`, whose rows are `stride` apart, for its keys. Memory is not owned.
  HeldHead(Profile profile, const AttentionArgs& args, int32_t kv_heads, const KvLayer& pages,
           int32_t* page_ids, float* products, int64_t stride)
      : profile_(profile),
        k_(args.k),
        v_(args.v),
        relative_(args.relative),
        width_(int64_t{kv_heads} * pages.head_dim),
        pages_(pages),
        page_ids_(page_ids),
        products_(products),
        stride_(stride) {}

  // Copies the pages in [first, past) of a sequence's head that are not copied yet.
  void Hold(const AttentionSequence& sequence, int32_t head, int64_t first, int64_t past) {
    if (&sequence != sequence_ || head != head_ || first < first_ || first > past_) {
      sequence_ = &sequence;
      head_ = head;
      first_ = past_ = first;
    }
    if (past_ < past) MultiplyKeys(past_, past);
    for (; past_ < past; ++past_) CopyPage(past_);
  }

  const KvLayer& pages() const { return pages_; }
  const int32_t* page_ids() const { return page_ids_; }
  // Returns the products of the copied keys. Their values are nullptr without a table.
  const simd::TableProducts& products() const { return held_products_; }

 private:
  void CopyPage(int64_t page) {
    const int32_t* const rows = sequence_->rows;
    const int64_t end = std::min<int64_t>((page + 1) * kPageTokens, sequence_->count);
    page_ids_[page] = static_cast<int32_t>(page);
    for (int64_t begin = page * kPageTokens, past; begin < end; begin = past) {
      past = begin + 1;
      while (past < end && rows[past] == rows[past - 1] + 1) ++past;
      const int64_t at = rows[begin] * width_ + int64_t{head_} * pages_.head_dim;
      StoreHead(profile_, pages_, begin, 0, past - begin, {k_ + at, width_}, {v_ + at, width_});
    }
  }

  // Multiplies the keys of pages [first, past) with the table's rows for all queries of the
  // sequence.
  void MultiplyKeys(int64_t first, int64_t past) {
    if (relative_ == nullptr || relative_->queries().matrices() == 0) return;
    const int64_t begin = first * kPageTokens, length = sequence_->count;
    const StepRows keys = {k_ + int64_t{head_} * pages_.head_dim, width_, sequence_->rows + begin,
                           std::min(past * kPageTokens, length) - begin};
    held_products_ = {products_, stride_,
                      MultiplyByTable(profile_, relative_->queries(), head_,
                                      relative_->RowsFor(1 - length, length - 1), keys,
                                      products_ + begin * stride_, stride_)};
  }

  const Profile profile_;
  const float *const k_, *const v_;
  const RelativePositions* const relative_;
  const int64_t width_;
  const KvLayer pages_;
  int32_t* const page_ids_;
  float* const products_;
  const int64_t stride_;
  simd::TableProducts held_products_ = {};
  const AttentionSequence* sequence_ = nullptr;
  int32_t head_ = 0;
  int64_t first_ = 0, past_ = 0;  // the copied pages
};

// The attention of a step.
class Step {
 public:
  Step(const Context& context, const AttentionArgs& args, const KvLayer& kv,
       std::span<const AttentionSequence> sequences, const AttentionSizes& sizes, float* scratch)
      : kernels_(simd::AttentionFor(context.profile, kv.type)),
        pool_(*context.pool),
        schedule_(args.choice, sizes, sequences),
        multiply_adds_(WorkOfAttention(sequences, sizes,
                                       args.relative == nullptr ? 0 : args.relative->tables())),
        layout_(LayOutScratch(args.choice, sizes)),
        profile_(context.profile),
        args_(args),
        sizes_(sizes),
        scratch_(scratch),
        template_{.q = args.q,
                  .out = args.out,
                  .row_stride = int64_t{args.q_heads} * kv.head_dim,
                  .heads = sizes.group(),
                  .rows = nullptr,
                  .count = 0,
                  .first_position = 0,
                  .context = 0,
                  .scale = args.scale,
                  .window = args.window,
                  .soft_cap = args.soft_cap,
                  .bias = args.bias,
                  .bias_positions = args.bias_positions,
                  .silu_share = args.silu_share,
                  .relative = {},
                  .kv = &kv,
                  .kv_head = 0,
                  .pages = nullptr,
                  .xsa = args.xsa,
                  .xsa_eps = args.xsa_eps,
                  .xsa_gate = args.xsa_gate,
                  .cos_sim = args.cos_sim,
                  .proj_frac = args.proj_frac,
                  .diagnostics_stride = args.q_heads,
                  .first_segment = 0,
                  .past_segment = 0,
                  .fetch_pages = 0,
                  .two_pass = args.choice.order == AttentionOrder::kTwoPass,
                  .record_stride = layout_.record_stride,
                  .scores = nullptr,
                  .score_stride = layout_.score_stride,
                  .queries = nullptr,
                  .segment_sums = nullptr,
                  .running = nullptr,
                  .own_values = nullptr,
                  .parts = nullptr} {}

  void Run() {
    const int64_t items = schedule_.items(), queries = schedule_.divided_queries();
    const auto run = [this](int64_t begin, int64_t end, int worker) {
      RunItems(begin, end, worker);
    };
    pool_.ParallelFor(items, schedule_.GrainOf(items), multiply_adds_, run);
    const auto fold = [this](int64_t begin, int64_t end, int worker) {
      HeldHead held = NothingHeld(worker);
      schedule_.ForDividedQueries(begin, end, [&](const AttentionItem& item, int64_t index) {
        simd::AttentionBlock block = BlockOf(item);
        block.own_values = scratch_ + worker * layout_.worker_floats + layout_.own_values;
        if (args_.xsa != XsaForm::kOff) {
          const int64_t page = (block.first_position + index / block.heads) / kPageTokens;
          ReadFrom(&held, item, page, page + 1, &block);
        }
        kernels_.fold(block, index);
      });
    };
    pool_.ParallelFor(queries, schedule_.GrainOf(queries), multiply_adds_, fold);
  }

 private:
  // Returns the item's block, without a worker's scratch memory.
  simd::AttentionBlock BlockOf(const AttentionItem& item) const {
    const AttentionSequence& sequence = *item.sequence;
    simd::AttentionBlock block = template_;
    block.kv_head = item.kv_head;
    block.rows = sequence.rows + item.first_row;
    block.count = item.rows;
    block.first_position = sequence.first_position + item.first_row;
    block.context = args_.causal ? 0 : static_cast<int32_t>(sequence.keys());
    block.pages = sequence.pages;
    const int64_t head = int64_t{block.kv_head} * block.heads;
    block.q += head * block.kv->head_dim;
    block.out += head * block.kv->head_dim;
    if (block.bias != nullptr) block.bias += head * block.bias_stride();
    if (block.xsa_gate != nullptr) block.xsa_gate += head;
    if (block.cos_sim != nullptr) block.cos_sim += head;
    if (block.proj_frac != nullptr) block.proj_frac += head;
    block.first_segment = item.first_segment;
    block.past_segment = item.past_segment;
    block.fetch_pages = std::min(CeilDiv(item.visible, kPageTokens),
                                 item.past_segment * kSegmentTokens / kPageTokens);
    if (item.record >= 0) {
      block.parts = scratch_ + layout_.parts + item.record * layout_.record_stride;
    }
    return block;
  }

  // Returns a HeldHead for a worker. It holds nothing.
  HeldHead NothingHeld(int worker) const {
    float* const mine = scratch_ + worker * layout_.worker_floats;
    KvLayer pages = PagesOfHead(sizes_);
    pages.k = mine + layout_.keys;
    pages.v = mine + layout_.values;
    return {profile_,
            args_,
            sizes_.kv_heads,
            pages,
            reinterpret_cast<int32_t*>(mine + layout_.page_ids),
            mine + layout_.relative_keys,
            RelativeStride(sizes_)};
  }

  // Lets `block` add the terms of relative positions to its scores. Requires that `held` has the
  // keys that the item reads.
  void AddRelative(const AttentionItem& item, const HeldHead& held, float* products,
                   simd::AttentionBlock* block) const {
    if (args_.relative == nullptr) return;
    block->relative = {args_.relative->row_of(), {}, held.products()};
    const PackedWeights& table = args_.relative->keys();
    if (table.matrices() == 0) return;
    const int64_t first = item.first_segment * kSegmentTokens - item.first_row;
    const int64_t past =
        std::min<int64_t>(item.past_segment * kSegmentTokens, item.sequence->count);
    const TableRows range =
        args_.relative->RowsFor(first - (item.rows - 1), past - 1 - item.first_row);
    const StepRows queries = {args_.q + int64_t{item.kv_head} * sizes_.head_dim, block->row_stride,
                              block->rows, block->count};
    const int64_t stride = RelativeStride(sizes_);
    block->relative.queries = {
        products, stride,
        MultiplyByTable(profile_, table, item.kv_head, range, queries, products, stride)};
  }

  // If attention reads keys and values from the step's rows, lets `block` read pages [first, past)
  // of the item's sequence from `held`.
  void ReadFrom(HeldHead* held, const AttentionItem& item, int64_t first, int64_t past,
                simd::AttentionBlock* block) const {
    if (!sizes_.of_rows) return;
    held->Hold(*item.sequence, item.kv_head, first, past);
    block->kv = &held->pages();
    block->kv_head = 0;
    block->pages = held->page_ids();
  }

  // Prefetches the first pages that an item of few queries reads. In a decode step, the pages of
  // different sequences are not adjacent, so the processor would have to wait for an item's first
  // pages.
  void Fetch(const AttentionItem& item) const {
    constexpr int64_t kMaxPages = 4, kLineBytes = 64;
    if (sizes_.of_rows || int64_t{item.rows} * template_.heads > simd::kAttentionTile) return;
    const KvLayer& kv = *template_.kv;
    const int64_t begin = item.first_segment * kSegmentTokens / kPageTokens;
    const int64_t end = std::min(begin + kMaxPages, CeilDiv(item.visible, kPageTokens));
    for (int64_t page = begin; page < end; ++page) {
      const int64_t slab = int64_t{item.sequence->pages[page]} * kv.kv_heads + item.kv_head;
      for (const void* store : {kv.k, kv.v}) {
        const char* const bytes = static_cast<const char*>(store) + slab * kv.slab_bytes();
        for (int64_t i = 0; i < kv.slab_bytes(); i += kLineBytes) {
          __builtin_prefetch(bytes + i, 0, 2);
        }
      }
    }
  }

  void RunItems(int64_t begin, int64_t end, int worker) const {
    float* const mine = scratch_ + worker * layout_.worker_floats;
    HeldHead held = NothingHeld(worker);
    AttentionItem now = {};  // the item before the visited one
    const auto attend = [&] {
      simd::AttentionBlock block = BlockOf(now);
      ReadFrom(&held, now, now.first_segment * kSegmentTokens / kPageTokens, block.fetch_pages,
               &block);
      AddRelative(now, held, mine + layout_.relative_queries, &block);
      block.scores = mine;
      block.queries = mine + layout_.queries;
      block.segment_sums = mine + layout_.segment_sums;
      block.running = mine + layout_.running;
      block.own_values = mine + layout_.own_values;
      kernels_.attend(block);
    };
    schedule_.ForItems(begin, end, [&](const AttentionItem& item) {
      Fetch(item);
      if (now.sequence != nullptr) attend();
      now = item;
    });
    if (now.sequence != nullptr) attend();
  }

  const simd::AttentionKernels& kernels_;
  ThreadPool& pool_;
  const AttentionSchedule schedule_;
  const int64_t multiply_adds_;
  const ScratchLayout layout_;
  const Profile profile_;
  const AttentionArgs& args_;
  const AttentionSizes& sizes_;
  float* const scratch_;
  const simd::AttentionBlock template_;
};

}  // namespace

int64_t AttentionScratchFloats(const AttentionChoice& choice, const AttentionSizes& sizes) {
  return LayOutScratch(choice, sizes).floats;
}

void Attention(const Context& context, const AttentionArgs& args, const KvLayer& kv,
               std::span<const AttentionSequence> sequences, int64_t max_context, float* scratch) {
  SLUICE_CHECK(args.q_heads % kv.kv_heads == 0);
  SLUICE_CHECK(args.silu_share == 0 || args.xsa == XsaForm::kOff);
  SLUICE_CHECK(args.relative == nullptr || (args.k != nullptr && args.silu_share == 0 &&
                                            args.q_heads == kv.kv_heads && !args.causal));
  for (const AttentionSequence& sequence : sequences) {
    const int64_t past = sequence.first_position + sequence.count;
    SLUICE_CHECK(args.k == nullptr || sequence.first_position == 0);
    SLUICE_CHECK(past <= max_context && (args.bias == nullptr || past <= args.bias_positions));
    SLUICE_CHECK(args.relative == nullptr || past <= args.relative->positions());
  }
  const AttentionSizes sizes = {
      .q_heads = args.q_heads,
      .kv_heads = kv.kv_heads,
      .head_dim = kv.head_dim,
      .max_context = max_context,
      .threads = context.pool->threads(),
      .causal = args.causal,
      .window = args.window,
      .kv_type = kv.type,
      .of_rows = args.k != nullptr,
      .relative_rows = args.relative == nullptr ? 0 : args.relative->rows()};
  Step(context, args, kv, sequences, sizes, scratch).Run();
}

}  // namespace sluice::kernels
