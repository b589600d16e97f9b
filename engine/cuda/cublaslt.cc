#include "engine/cuda/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

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
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_config;
};

namespace {

constexpr int kMaxAlgorithms = 16;

absl::Status BlasStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " failed with status ", static_cast<int>(status)));
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Loads the library, which is never unloaded, since it registers functions that run at the end of
// the process.
absl::StatusOr<std::unique_ptr<const CublasLt::Functions>> LoadFunctions() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return absl::FailedPreconditionError(reason == nullptr ? name : std::string(reason));
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
                        Find(library, "cublasLtMatmulAlgoCheck", &f.check) &&
                        Find(library, "cublasLtMatmulAlgoConfigGetAttribute", &f.get_config);
  if (complete) return functions;
  return absl::FailedPreconditionError(absl::StrCat(name, " lacks a function"));
}

cublasLtEpilogue_t EpilogueOf(const DenseShape& shape) {
  switch (shape.activation) {
    case DenseActivation::kNone:
      break;
    case DenseActivation::kRelu:
      return shape.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case DenseActivation::
        kGeluTanh:  // the library's GELU is that by tanh, as a DenseCheck confirms
      return shape.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The types of a product: of the operands, of the result and of sums.
struct ProductTypes {
  cudaDataType_t in, out, scale;
  cublasComputeType_t sums;
};
ProductTypes TypesOf(const DenseShape& shape) {
  if (shape.int8()) return {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I};
  return {shape.half() ? CUDA_R_16BF : CUDA_R_32F, shape.half_out() ? CUDA_R_16BF : CUDA_R_32F,
          CUDA_R_32F, CUBLAS_COMPUTE_32F};
}

// The product as the library sees it, column-major: out^T [n, rows] = W^T [n, k] x^T [k, rows]. The
// buffers of out, W and x are used unchanged. For int8 the library supports only another form: the
// buffer has W, column-major, and the product transposes it. k and n must then be multiples of 4.
class Product {
 public:
  using Functions = CublasLt::Functions;

  Product(const Functions& functions, const DenseShape& shape, uint64_t rows) : f_(functions) {
    const ProductTypes types = TypesOf(shape);
    const uint64_t k = shape.k, n = shape.n;
    RecordError(f_.create_product(&product_, types.sums, types.scale), "cublasLtMatmulDescCreate");
    if (shape.int8()) {
      Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
      CreateMatrix(&weight_, types.in, k, n);
    } else {
      CreateMatrix(&weight_, types.in, n, k);
    }
    CreateMatrix(&x_, types.in, k, rows);
    CreateMatrix(&out_, types.out, n, rows);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(shape));
    if (!shape.bias) return;
    Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, types.in);
    // The check of an algorithm only looks at the presence and the alignment of the bias.
    SetBias(reinterpret_cast<const void*>(uintptr_t{256}));
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
  void RecordError(cublasStatus_t status, const char* call) {
    status_.Update(BlasStatus(status, call));
  }
  void CreateMatrix(cublasLtMatrixLayout_t* matrix, cudaDataType_t type, uint64_t rows,
                    uint64_t columns) {
    RecordError(f_.create_matrix(matrix, type, rows, columns, static_cast<int64_t>(rows)),
                "cublasLtMatrixLayoutCreate");
  }
  template <typename Value>
  void Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    if (product_ == nullptr) return;
    RecordError(f_.set_product(product_, attribute, &value, sizeof(value)),
                "cublasLtMatmulDescSetAttribute");
  }

  const Functions& f_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  absl::Status status_;
};

// Returns the numbers of rows to ask the heuristic about for a class. The largest class is asked
// about its middle first, and then about 1,024 rows, which the committed tables were made with.
std::vector<int32_t> RequestsOf(const RowClass& rows) {
  if (rows.last < kMaxDenseRows) return {rows.last};
  return {kMaxDenseRows / 2, 1024};
}

// Returns nullopt if the library has no such algorithm.
std::optional<int32_t> ConfigOf(const CublasLt::Functions& functions,
                                const cublasLtMatmulAlgo_t& algorithm,
                                cublasLtMatmulAlgoConfigAttributes_t attribute) {
  int32_t value = 0;
  size_t written = 0;
  const auto got = functions.get_config(&algorithm, attribute, &value, sizeof(value), &written);
  if (got != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open() {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<const Functions> functions, LoadFunctions());
  cublasLtHandle_t handle = nullptr;
  SLUICE_RETURN_IF_ERROR(BlasStatus(functions->create(&handle), "cublasLtCreate"));
  return std::unique_ptr<CublasLt>(new CublasLt(std::move(functions), handle));
}

CublasLt::CublasLt(std::unique_ptr<const Functions> functions, cublasLtHandle_t handle)
    : functions_(std::move(functions)),
      handle_(handle),
      name_(absl::StrCat("cublaslt", functions_->version())) {}

CublasLt::~CublasLt() { (void)functions_->destroy(handle_); }

std::vector<CublasLt::Algorithm> CublasLt::Algorithms(const DenseShape& shape,
                                                      const RowClass& rows) const {
  std::vector<Algorithm> algorithms;
  cublasLtMatmulPreference_t preference = nullptr;
  if (functions_->create_preference(&preference) != CUBLAS_STATUS_SUCCESS) return algorithms;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return functions_->set_preference(preference, attribute, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
  };
  const bool set =
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMaxWorkspaceBytes}) &&
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  const RowClass checked = WithEdges(shape, rows);
  for (const int32_t request : RequestsOf(rows)) {
    const Product product(*functions_, shape, request);
    std::array<cublasLtMatmulHeuristicResult_t, kMaxAlgorithms> found{};
    int count = 0;
    if (!set || !product.status().ok() ||
        functions_->heuristic(handle_, product.get(), product.weight(), product.x(), product.out(),
                              product.out(), preference, kMaxAlgorithms, found.data(),
                              &count) != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t& opaque = found[i].algo;
      const bool known = std::ranges::any_of(algorithms, [&](const Algorithm& other) {
        return std::memcmp(&other.opaque, &opaque, sizeof(opaque)) == 0;
      });
      if (found[i].state != CUBLAS_STATUS_SUCCESS || known) continue;
      const absl::StatusOr<Algorithm> algorithm = Check(shape, checked, opaque);
      if (algorithm.ok()) algorithms.push_back(*algorithm);
    }
  }
  (void)functions_->destroy_preference(preference);
  return algorithms;
}

absl::StatusOr<CublasLt::Algorithm> CublasLt::Check(const DenseShape& shape, const RowClass& tried,
                                                    const cublasLtMatmulAlgo_t& opaque) const {
  const auto parts = ConfigOf(*functions_, opaque, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  if (!parts) return absl::FailedPreconditionError("the library has no such algorithm");
  if (*parts != 0 && *parts != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("it splits its sums in ", *parts, " parts, must be 1"));
  }
  const auto reduction = ConfigOf(*functions_, opaque, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  if (reduction != int32_t{CUBLASLT_REDUCTION_SCHEME_NONE}) {
    return absl::FailedPreconditionError("it adds partial sums of several blocks");
  }
  Algorithm algorithm = {opaque, 0};
  for (int32_t rows = tried.first; rows <= tried.last; ++rows) {
    rows = TriedRows(shape, rows);
    const Product product(*functions_, shape, rows);
    if (!product.status().ok()) return product.status();
    cublasLtMatmulHeuristicResult_t result{};
    const auto checked = functions_->check(handle_, product.get(), product.weight(), product.x(),
                                           product.out(), product.out(), &opaque, &result);
    if (checked != CUBLAS_STATUS_SUCCESS) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the library refuses it for ", rows, " rows with status ", static_cast<int>(checked)));
    }
    algorithm.workspace_bytes = std::max(algorithm.workspace_bytes, result.workspaceSize);
  }
  if (algorithm.workspace_bytes <= kMaxWorkspaceBytes) return algorithm;
  return absl::FailedPreconditionError(absl::StrCat(
      "it needs ", algorithm.workspace_bytes, " bytes of workspace, over ", kMaxWorkspaceBytes));
}

std::string CublasLt::Describe(const cublasLtMatmulAlgo_t& opaque) const {
  const auto of = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    return ConfigOf(*functions_, opaque, attribute).value_or(-1);
  };
  return absl::StrCat("algorithm ", of(CUBLASLT_ALGO_CONFIG_ID), ", tile ",
                      of(CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
                      of(CUBLASLT_ALGO_CONFIG_STAGES_ID));
}

absl::Status CublasLt::Run(const DenseShape& shape, const Algorithm& algorithm,
                           const DenseArgs& args, cudaStream_t stream) const {
  Product product(*functions_, shape, args.rows);
  if (shape.bias) product.SetBias(args.bias);
  if (!product.status().ok()) return product.status();
  const float one = 1, kept = shape.accumulate ? 1 : 0;
  const int32_t one_in_int8 = 1, kept_in_int8 = 0;
  const void* const alpha = shape.int8() ? static_cast<const void*>(&one_in_int8) : &one;
  const void* const beta = shape.int8() ? static_cast<const void*>(&kept_in_int8) : &kept;
  void* const workspace = algorithm.workspace_bytes > 0 ? args.workspace : nullptr;
  return BlasStatus(
      functions_->matmul(handle_, product.get(), alpha, args.weight, product.weight(), args.x,
                         product.x(), beta, args.out, product.out(), args.out, product.out(),
                         &algorithm.opaque, workspace, algorithm.workspace_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace sluice
