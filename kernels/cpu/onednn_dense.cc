#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/onednn_dense.h"

namespace sluice::kernels {
namespace {

using dnnl::memory;

std::atomic<int64_t> primitives_created{0};

constexpr int64_t kSliceCols = 256;  // columns of one task; fixed, so that threads move no bit
constexpr int kBlockSizes = 7;       // blocks of 1, 2, 4, .., 64 rows
constexpr int64_t kBlockRows = int64_t{1} << (kBlockSizes - 1);

memory::desc RowMajor(int64_t rows, int64_t cols) {
  return {{rows, cols}, memory::data_type::f32, memory::format_tag::ab};
}

// oneDNN's parallel loops take the calling thread's OpenMP setting: with 1 they stay on this
// thread.
void KeepToThisThread() { omp_set_num_threads(1); }

// Memory objects of one worker, bound to addresses at every run, and the argument list over them.
struct Arguments {
  memory source, destination, scratchpad;
  std::array<dnnl_exec_arg_t, 4> list;
};

// What is common to all slices of one width: a primitive for each block size.
struct Kernel {
  int64_t cols = 0;
  std::vector<dnnl::matmul> primitives;         // [kBlockSizes]
  std::vector<std::vector<Arguments>> workers;  // [threads][kBlockSizes]
};

dnnl::matmul::primitive_desc Describe(const dnnl::engine& engine, int64_t rows, int64_t k,
                                      const memory::desc& weights) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {{RowMajor(rows, k), weights, RowMajor(rows, weights.dims()[1])}, attributes, engine};
}

// Adds the bias and what was there, and writes to rows of stride ldo.
void WriteBlock(const float* block, int64_t rows, int64_t cols, const float* bias, bool accumulate,
                float* out, int64_t ldo) {
  for (int64_t r = 0; r < rows; ++r, block += cols, out += ldo) {
    if (bias == nullptr && !accumulate) {
      std::memcpy(out, block, static_cast<size_t>(cols) * sizeof(float));
      continue;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const float sum = bias == nullptr ? block[c] : block[c] + bias[c];
      out[c] = accumulate ? out[c] + sum : sum;
    }
  }
}

class OneDnnDense final : public Dense {
 public:
  // Throws dnnl::error.
  OneDnnDense(const Context& context, const WeightSource& source)
      : k_(source.k),
        n_(source.n),
        engine_(dnnl::engine::kind::cpu, 0),
        streams_(static_cast<size_t>(context.pool->threads()), dnnl::stream(engine_)) {
    SLUICE_CHECK(source.matrices == 1);
    KeepToThisThread();
    for (int64_t col = 0; col < n_; col += kSliceCols) {
      const int64_t cols = std::min(kSliceCols, n_ - col);
      if (kernels_.empty() || kernels_.back().cols != cols) AddKernel(cols);
      slices_.push_back(PackSlice(source, col, cols));
    }
  }

  void Run(const Context& context, int64_t rows, const GemmArgs& args) const override {
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    const int64_t slices = static_cast<int64_t>(slices_.size());
    context.pool->ParallelFor(blocks * slices, 1, [&](int64_t begin, int64_t end, int worker) {
      KeepToThisThread();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / slices * kBlockRows;
        RunSlice(i % slices, row, std::min(kBlockRows, rows - row), args, worker);
      }
    });
  }

  int64_t k() const override { return k_; }
  int64_t n() const override { return n_; }
  int64_t bytes() const override { return bytes_; }
  const char* implementation() const override { return "onednn"; }

 private:
  void AddKernel(int64_t cols) {
    Kernel kernel;
    kernel.cols = cols;
    const memory::desc any({k_, cols}, memory::data_type::f32, memory::format_tag::any);
    const memory::desc layout = Describe(engine_, kBlockRows, k_, any).weights_desc();
    kernel.workers.resize(streams_.size());
    for (int size = 0; size < kBlockSizes; ++size) {
      const auto description = Describe(engine_, int64_t{1} << size, k_, layout);
      kernel.primitives.emplace_back(description);
      primitives_created.fetch_add(1, std::memory_order_relaxed);
      for (std::vector<Arguments>& worker : kernel.workers) {
        worker.push_back(MakeArguments(description));
      }
    }
    layouts_.push_back(layout);
    kernels_.push_back(std::move(kernel));
  }

  Arguments MakeArguments(const dnnl::matmul::primitive_desc& description) const {
    Arguments made = {.source = memory(description.src_desc(), engine_, nullptr),
                      .destination = memory(description.dst_desc(), engine_, nullptr),
                      .scratchpad = memory(description.scratchpad_desc(), engine_),
                      .list = {}};
    made.list = {{{DNNL_ARG_SRC, made.source.get()},
                  {DNNL_ARG_DST, made.destination.get()},
                  {DNNL_ARG_SCRATCHPAD, made.scratchpad.get()},
                  {DNNL_ARG_WEIGHTS, nullptr}}};
    return made;
  }

  memory PackSlice(const WeightSource& source, int64_t col, int64_t cols) {
    std::vector<float> plain(static_cast<size_t>(k_ * cols));
    for (int64_t i = 0; i < (source.transposed ? cols : k_); ++i) {
      if (source.transposed) {
        ConvertToFloat(source.data, source.dtype, (col + i) * k_, k_, &plain[i * k_]);
      } else {
        ConvertToFloat(source.data, source.dtype, i * n_ + col, cols, &plain[i * cols]);
      }
    }
    const memory::desc stored({k_, cols}, memory::data_type::f32,
                              source.transposed ? memory::format_tag::ba : memory::format_tag::ab);
    memory from(stored, engine_, plain.data());
    memory packed(layouts_.back(), engine_);
    dnnl::reorder(from, packed).execute(streams_[0], from, packed);
    streams_[0].wait();
    primitives_created.fetch_add(1, std::memory_order_relaxed);
    bytes_ += static_cast<int64_t>(packed.get_desc().get_size());
    return packed;
  }

  // Rows [row, row + rows), at most kBlockRows, of one slice: the largest block that fits, again.
  void RunSlice(int64_t slice, int64_t row, int64_t rows, const GemmArgs& args, int worker) const {
    alignas(64) float block[kBlockRows * kSliceCols];
    const int64_t col = slice * kSliceCols;
    const Kernel& kernel =
        slice + 1 < static_cast<int64_t>(slices_.size()) ? kernels_.front() : kernels_.back();
    while (rows > 0) {
      // A block's rows must follow one another in memory; a single row always does.
      const int largest = args.ldx == k_ ? kBlockSizes - 1 : 0;
      int size = 0;
      while (size < largest && (int64_t{2} << size) <= rows) ++size;
      const int64_t count = int64_t{1} << size;
      Execute(kernel, size, slices_[slice], args.x + row * args.ldx, block, worker);
      WriteBlock(block, count, kernel.cols, args.bias == nullptr ? nullptr : args.bias + col,
                 args.accumulate, args.out + row * args.ldo + col, args.ldo);
      row += count;
      rows -= count;
    }
  }

  // Through the C interface: the C++ one copies the argument list into a new vector each time.
  void Execute(const Kernel& kernel, int size, const memory& weights, const float* x, float* out,
               int worker) const {
    const Arguments& arguments = kernel.workers[worker][size];
    std::array<dnnl_exec_arg_t, 4> list = arguments.list;
    list[3].memory = weights.get();
    const bool bound =
        dnnl_memory_set_data_handle(list[0].memory, const_cast<float*>(x)) == dnnl_success &&
        dnnl_memory_set_data_handle(list[1].memory, out) == dnnl_success;
    SLUICE_CHECK(bound);
    SLUICE_CHECK(dnnl_primitive_execute(kernel.primitives[size].get(), streams_[worker].get(),
                                        static_cast<int>(list.size()),
                                        list.data()) == dnnl_success);
    SLUICE_CHECK(dnnl_stream_wait(streams_[worker].get()) == dnnl_success);
  }

  const int64_t k_;
  const int64_t n_;
  int64_t bytes_ = 0;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;  // [threads]
  std::vector<Kernel> kernels_;        // one, or two when the last slice is narrower
  std::vector<memory::desc> layouts_;  // of the weights, per kernel
  std::vector<memory> slices_;         // packed weights
};

}  // namespace

int64_t PrimitivesCreated() { return primitives_created.load(std::memory_order_relaxed); }

std::unique_ptr<Dense> CreateOneDnnDense(const Context& context, const WeightSource& source) {
  try {
    return std::make_unique<OneDnnDense>(context, source);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

bool RowsIndependent(const Context& context, const Dense& dense) {
  constexpr int64_t kRows = 2 * kBlockRows - 1;  // runs every block size
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> x(static_cast<size_t>(kRows * dense.k()));
  for (float& value : x) value = uniform(random);

  const auto run = [&](int64_t first, int64_t rows, std::vector<float>& out) {
    dense.Run(context, rows,
              {.x = &x[first * dense.k()],
               .ldx = dense.k(),
               .bias = nullptr,
               .bias_stride = 0,
               .out = &out[first * dense.n()],
               .ldo = dense.n(),
               .accumulate = false});
  };
  std::vector<float> alone(static_cast<size_t>(kRows * dense.n())), together(alone.size());
  for (int64_t r = 0; r < kRows; ++r) run(r, 1, alone);
  const auto same = [&](int64_t first, int64_t rows) {
    run(first, rows, together);
    return std::memcmp(&alone[first * dense.n()], &together[first * dense.n()],
                       static_cast<size_t>(rows * dense.n()) * sizeof(float)) == 0;
  };
  for (int64_t rows = 2; rows <= kBlockRows; rows *= 2) {
    if (!same(0, rows)) return false;
  }
  return same(0, kRows);
}

}  // namespace sluice::kernels
