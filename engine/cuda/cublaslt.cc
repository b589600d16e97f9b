#include "engine/cuda/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

struct CublasLt::Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_matrix;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_matrix;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_config;
};

namespace {

// Rows that the heuristic is asked about: a large bucket.
constexpr uint64_t kTypicalRows = 1024;
constexpr int kMostAlgorithms = 16;

absl::Status ToStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " failed with status ", static_cast<int>(status)));
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The library is never unloaded: it registers what ends with the process.
absl::StatusOr<std::unique_ptr<const CublasLt::Functions>> LoadFunctions() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("cuda.dense is cublaslt, but ", reason == nullptr ? name.c_str() : reason));
  }
  auto functions = std::make_unique<CublasLt::Functions>();
  CublasLt::Functions& f = *functions;
  const bool complete = Find(library, "cublasLtCreate", &f.create) &&
                        Find(library, "cublasLtDestroy", &f.destroy) &&
                        Find(library, "cublasLtGetVersion", &f.version) &&
                        Find(library, "cublasLtMatmul", &f.matmul) &&
                        Find(library, "cublasLtMatmulDescCreate", &f.create_product) &&
                        Find(library, "cublasLtMatmulDescDestroy", &f.destroy_product) &&
                        Find(library, "cublasLtMatmulDescSetAttribute", &f.set_product) &&
                        Find(library, "cublasLtMatrixLayoutCreate", &f.create_matrix) &&
                        Find(library, "cublasLtMatrixLayoutDestroy", &f.destroy_matrix) &&
                        Find(library, "cublasLtMatmulPreferenceCreate", &f.create_preference) &&
                        Find(library, "cublasLtMatmulPreferenceDestroy", &f.destroy_preference) &&
                        Find(library, "cublasLtMatmulPreferenceSetAttribute", &f.set_preference) &&
                        Find(library, "cublasLtMatmulAlgoGetHeuristic", &f.heuristic) &&
                        Find(library, "cublasLtMatmulAlgoConfigGetAttribute", &f.get_config);
  if (complete) return functions;
  return absl::FailedPreconditionError(
      absl::StrCat("cuda.dense is cublaslt, but ", name, " lacks a function"));
}

// The product as the library sees it, column-major: out^T [n, rows] = W^T [n, k] x^T [k, rows], whose
// buffers are those of out, W and x as they are.
class Product {
 public:
  using Functions = CublasLt::Functions;

  Product(const Functions& functions, const DenseShape& shape, uint64_t rows) : f_(functions) {
    const cudaDataType_t type = shape.half ? CUDA_R_16BF : CUDA_R_32F;
    const auto k = static_cast<uint64_t>(shape.k), n = static_cast<uint64_t>(shape.n);
    Note(f_.create_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    Note(f_.create_matrix(&weight_, type, n, k, shape.n), "cublasLtMatrixLayoutCreate");
    Note(f_.create_matrix(&x_, type, k, rows, shape.k), "cublasLtMatrixLayoutCreate");
    Note(f_.create_matrix(&out_, type, n, rows, shape.n), "cublasLtMatrixLayoutCreate");
    if (!shape.bias) return;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  ~Product() {
    if (out_ != nullptr) (void)f_.destroy_matrix(out_);
    if (x_ != nullptr) (void)f_.destroy_matrix(x_);
    if (weight_ != nullptr) (void)f_.destroy_matrix(weight_);
    if (product_ != nullptr) (void)f_.destroy_product(product_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void SetBias(const void* bias) { Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
  const absl::Status& status() const { return status_; }
  cublasLtMatmulDesc_t get() const { return product_; }
  cublasLtMatrixLayout_t weight() const { return weight_; }
  cublasLtMatrixLayout_t x() const { return x_; }
  cublasLtMatrixLayout_t out() const { return out_; }

 private:
  void Note(cublasStatus_t status, const char* call) { status_.Update(ToStatus(status, call)); }
  template <typename Value>
  void Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    if (product_ == nullptr) return;
    Note(f_.set_product(product_, attribute, &value, sizeof(value)),
         "cublasLtMatmulDescSetAttribute");
  }

  const Functions& f_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  absl::Status status_;
};

bool SplitsSums(const CublasLt::Functions& functions, const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 0;
  size_t written = 0;
  return functions.get_config(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof(parts),
                              &written) != CUBLAS_STATUS_SUCCESS ||
         parts > 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open() {
  absl::StatusOr<std::unique_ptr<const Functions>> functions = LoadFunctions();
  if (!functions.ok()) return functions.status();
  cublasLtHandle_t handle = nullptr;
  absl::Status status = ToStatus((*functions)->create(&handle), "cublasLtCreate");
  if (!status.ok()) return status;
  return std::unique_ptr<CublasLt>(new CublasLt(*std::move(functions), handle));
}

CublasLt::CublasLt(std::unique_ptr<const Functions> functions, cublasLtHandle_t handle)
    : functions_(std::move(functions)),
      handle_(handle),
      name_(absl::StrCat("cublaslt", functions_->version())) {}

CublasLt::~CublasLt() { (void)functions_->destroy(handle_); }

std::vector<CublasLt::Algorithm> CublasLt::Algorithms(const DenseShape& shape) const {
  Product product(*functions_, shape, kTypicalRows);
  // Looked at for being there and for its alignment alone.
  if (shape.bias) product.SetBias(reinterpret_cast<const void*>(uintptr_t{256}));
  std::vector<Algorithm> algorithms;
  cublasLtMatmulPreference_t preference = nullptr;
  if (!product.status().ok() ||
      functions_->create_preference(&preference) != CUBLAS_STATUS_SUCCESS) {
    return algorithms;
  }
  const uint64_t no_workspace = 0;
  const auto set = functions_->set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &no_workspace, sizeof(no_workspace));
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> found{};
  int count = 0;
  if (set == CUBLAS_STATUS_SUCCESS &&
      functions_->heuristic(handle_, product.get(), product.weight(), product.x(), product.out(),
                            product.out(), preference, kMostAlgorithms, found.data(),
                            &count) == CUBLAS_STATUS_SUCCESS) {
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = found[static_cast<size_t>(i)];
      const bool usable = result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize == 0;
      if (usable && !SplitsSums(*functions_, result.algo)) algorithms.push_back({result.algo});
    }
  }
  (void)functions_->destroy_preference(preference);
  return algorithms;
}

absl::Status CublasLt::Run(const DenseShape& shape, const Algorithm& algorithm,
                           const DenseArgs& args, cudaStream_t stream) const {
  Product product(*functions_, shape, static_cast<uint64_t>(args.rows));
  if (shape.bias) product.SetBias(args.bias);
  if (!product.status().ok()) return product.status();
  const float one = 1, kept = shape.accumulate ? 1 : 0;
  return ToStatus(functions_->matmul(handle_, product.get(), &one, args.weight, product.weight(),
                                     args.x, product.x(), &kept, args.out, product.out(), args.out,
                                     product.out(), &algorithm.opaque, nullptr, 0, stream),
                  "cublasLtMatmul");
}

}  // namespace sluice
