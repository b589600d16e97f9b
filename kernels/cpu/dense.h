// A dense layer: oneDNN where its rows do not depend on the number of rows, our GEMM elsewhere.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cpu/gemm.h"

namespace sluice::kernels {

// Number of oneDNN primitives created since process start. Constant while plans replay.
int64_t PrimitivesCreated();

// Immutable weights of one dense layer [k, n] with everything prepared to run any number of rows:
// Run creates no primitive and allocates nothing.
//
// With oneDNN, rows are cut into blocks of fixed sizes (powers of two), one primitive a size, run
// single-threaded inside our workers. It is used under the AVX-512 profile when a check at
// construction finds its rows bitwise equal for all block sizes; else GroupedGemm is.
class Dense {
 public:
  virtual ~Dense() = default;

  // `source.matrices` must be 1.
  static std::unique_ptr<Dense> Create(const Context& context, const WeightSource& source);

  // Contract of Gemm(). `context` has the profile and pool size given to Create.
  virtual void Run(const Context& context, int64_t rows, const GemmArgs& args) const = 0;

  virtual int64_t k() const = 0;
  virtual int64_t n() const = 0;
  virtual int64_t bytes() const = 0;
  virtual const char* implementation() const = 0;  // "onednn" or "gemm"
};

// The oneDNN implementation whatever the profile and without the check; nullptr where oneDNN
// cannot.
std::unique_ptr<Dense> CreateOneDnnDense(const Context& context, const WeightSource& source);

}  // namespace sluice::kernels
