#include "kernels/cpu/dense.h"

#include "kernels/check.h"
#include "kernels/cpu/onednn_dense.h"

namespace sluice::kernels {
namespace {

class GemmDense final : public Dense {
 public:
  GemmDense(const Context& context, const WeightSource& source)
      : weights_(PackedWeights::Pack(context, source)) {
    SLUICE_CHECK(source.matrices == 1);
  }

  void Run(const Context& context, int64_t rows, const GemmArgs& args) const override {
    Gemm(context, weights_, rows, args);
  }
  int64_t k() const override { return weights_.k(); }
  int64_t n() const override { return weights_.n(); }
  int64_t bytes() const override { return weights_.bytes(); }
  const char* implementation() const override { return "gemm"; }

 private:
  const PackedWeights weights_;
};

}  // namespace

std::unique_ptr<Dense> Dense::Create(const Context& context, const WeightSource& source) {
  if (context.profile == Profile::kAvx512F32) {
    std::unique_ptr<Dense> dense = CreateOneDnnDense(context, source);
    if (dense != nullptr && RowsIndependent(context, *dense)) return dense;
  }
  return std::make_unique<GemmDense>(context, source);
}

}  // namespace sluice::kernels
