// Compares our GEMM with oneDNN's, both with prepacked weights, alternating on one thread: f32 with
// the fastest f32 profile and, if the machine has one, bf16 with the fastest bf16 profile. For
// bf16, oneDNN receives rows that are already rounded. Arguments: rows, k, n. Ratios are oneDNN's
// time divided by ours.
#include <benchmark/benchmark.h>
#include <omp.h>
#include <dnnl.hpp>

#include <vector>

#include "kernels/cpu/gemm.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice::kernels {
namespace {

constexpr int kRounds = 25;

// Runs our GEMM and oneDNN's for weights of one dtype.
class Contest {
 public:
  Contest(const Context& context, DType dtype, int64_t rows, int64_t k, int64_t n)
      : context_(context),
        x_(static_cast<size_t>(rows * k), 0.5f),
        out_(static_cast<size_t>(rows * n)),
        ours_(PackedWeights::Pack(context, {std::vector<float>(static_cast<size_t>(k * n)).data(),
                                            dtype, 1, k, n, false})),
        rows_(rows) {
    using dnnl::memory;
    const auto type = dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
    const dnnl::matmul::primitive_desc description(
        {memory::desc({rows, k}, type, memory::format_tag::ab),
         memory::desc({k, n}, type, memory::format_tag::any),
         memory::desc({rows, n}, memory::data_type::f32, memory::format_tag::ab)},
        engine_);
    matmul_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, memory(description.src_desc(), engine_)},
                  {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), engine_)},
                  {DNNL_ARG_DST, memory(description.dst_desc(), engine_)}};
  }

  void Round() {
    Measure(context_, ours_times_, [&] {
      Gemm(context_, ours_, rows_,
           {x_.data(), ours_.k(), nullptr, 0, out_.data(), ours_.n(), false});
    });
    Measure(context_, onednn_times_, [&] {
      matmul_.execute(stream_, arguments_);
      stream_.wait();
    });
    roofline_.Probe();
  }

  void Report(benchmark::State& state, const std::string& dtype) const {
    const double flops = 2.0 * static_cast<double>(rows_ * ours_.k() * ours_.n());
    const double bytes = static_cast<double>(ours_.bytes());
    state.counters["MFLOP"] = flops / 1e6;
    state.counters["MB_" + dtype] = state.counters["MB_onednn_" + dtype] = bytes / 1e6;
    roofline_.Report(state, dtype.c_str(), ours_times_, flops, bytes);
    roofline_.Report(state, ("onednn_" + dtype).c_str(), onednn_times_, flops, bytes);
    state.counters["onednn_over_ours_" + dtype] = onednn_times_.Median() / ours_times_.Median();
  }

 private:
  const Context context_;
  const std::vector<float> x_;
  std::vector<float> out_;
  const PackedWeights ours_;
  const int64_t rows_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
  Series ours_times_, onednn_times_;
  Roofline roofline_{context_};
};

void BM_BesideOneDnn(benchmark::State& state) {
  omp_set_num_threads(1);
  ThreadPool pool(1);
  const int64_t rows = state.range(0), k = state.range(1), n = state.range(2);
  const Context f32 = {BestProfile(), &pool};
  Contest contest_f32(f32, DType::kF32, rows, k, n);
  std::unique_ptr<Contest> contest_bf16;
  const auto bf16 = ParseProfile("bf16");
  if (bf16.ok()) {
    contest_bf16 = std::make_unique<Contest>(Context{*bf16, &pool}, DType::kBF16, rows, k, n);
  }
  for (auto _ : state) {
    contest_f32.Round();
    if (contest_bf16) contest_bf16->Round();
  }
  contest_f32.Report(state, "f32");
  if (contest_bf16) contest_bf16->Report(state, "bf16");
  state.SetLabel(std::string(ProfileName(f32.profile)) +
                 (bf16.ok() ? ", " + std::string(ProfileName(*bf16)) : ""));
}
BENCHMARK(BM_BesideOneDnn)
    ->Iterations(kRounds)
    ->ArgNames({"rows", "k", "n"})
    ->ArgsProduct({{1, 16, 64, 512}, {512}, {512, 2048}})
    ->ArgsProduct({{1, 16, 64, 512}, {2048}, {512, 2048}});

}  // namespace
}  // namespace sluice::kernels
