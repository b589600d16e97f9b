#include "server/protocol/tensors/tensors.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "kernels/dtype.h"
#include "server/common/status.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

using InputHeader = inference::ModelInferRequest::InferInputTensor;

// Checks that typed contents are only in the field of the tensor's datatype, which holds `typed`
// elements.
absl::Status CheckOnlyKind(const InputHeader& header, int64_t typed) {
  const inference::InferTensorContents& contents = header.contents();
  const int64_t all = int64_t{contents.bool_contents_size()} + contents.int_contents_size() +
                      contents.int64_contents_size() + contents.uint_contents_size() +
                      contents.uint64_contents_size() + contents.fp32_contents_size() +
                      contents.fp64_contents_size() + contents.bytes_contents_size();
  if (all == typed) return absl::OkStatus();
  return InputError(header.name(),
                    absl::StrCat("has contents of other datatypes than ", header.datatype(),
                                 "; use only the field of its datatype"));
}

absl::Status CheckHeader(const InputHeader& header, bool has_raw) {
  for (const auto& [name, unused] : header.parameters()) {
    // KServe's clients state the size of raw contents, which the contents have too.
    if (name == "binary_data_size") continue;
    return InputError(header.name(),
                      absl::StrCat("has the unknown parameter ", Printable(name), "; remove it"));
  }
  if (has_raw && header.has_contents()) {
    return InputError(header.name(),
                      "has contents in addition to raw_input_contents; use only one");
  }
  return absl::OkStatus();
}

absl::Status CheckDimension(const InputHeader& header, int index, absl::string_view meaning,
                            Extent extent) {
  const int64_t size = header.shape(index);
  if (size >= extent.min && size <= extent.max) return absl::OkStatus();
  return InputError(header.name(), absl::StrCat("has ", size, " ", meaning, "; expected ",
                                                extent.min, " to ", extent.max));
}

absl::Status CheckShape(const InputHeader& header, Extent rows, Extent columns,
                        int dimensions = 2) {
  if (header.shape_size() != dimensions) {
    return InputError(header.name(), absl::StrCat("has ", header.shape_size(),
                                                  " dimensions; expected ", dimensions));
  }
  absl::Status status = CheckDimension(header, 0, "rows", rows);
  if (status.ok()) status = CheckDimension(header, 1, "columns", columns);
  return status;
}

absl::Status WrongDatatype(const InputHeader& header, absl::string_view expected) {
  return InputError(header.name(), absl::StrCat("has the datatype ", Printable(header.datatype()),
                                                "; expected ", expected));
}

absl::Status WrongSize(const InputHeader& header, int64_t found, int64_t expected,
                       absl::string_view unit) {
  return InputError(header.name(),
                    absl::StrCat("has ", found, " ", unit, "; its shape [",
                                 absl::StrJoin(header.shape(), ", "), "] needs ", expected));
}

// Takes one BYTES element, a 4-byte length and its bytes, from the front of `rest`.
bool TakeString(std::string_view* rest, std::string_view* element) {
  uint32_t size;
  if (rest->size() < sizeof(size)) return false;
  std::memcpy(&size, rest->data(), sizeof(size));
  rest->remove_prefix(sizeof(size));
  if (rest->size() < size) return false;
  *element = rest->substr(0, size);
  rest->remove_prefix(size);
  return true;
}

absl::StatusOr<std::vector<std::string_view>> WalkStrings(const InputHeader& header,
                                                          std::string_view raw) {
  const int64_t count = header.shape(0);
  if (std::ssize(raw) / kSizeOf<uint32_t> < count) {
    return InputError(header.name(),
                      absl::StrCat("has ", raw.size(), " raw bytes, too few for ", count,
                                   " elements; each has a 4-byte length and its bytes"));
  }
  std::vector<std::string_view> strings(count);
  for (int64_t i = 0; i < count; ++i) {
    if (!TakeString(&raw, &strings[i])) {
      return InputError(header.name(), absl::StrCat("ends within element ", i,
                                                    "; expected a 4-byte length and its bytes"));
    }
  }
  if (!raw.empty()) {
    return InputError(header.name(),
                      absl::StrCat("has ", raw.size(), " bytes after its last element"));
  }
  return strings;
}

}  // namespace

absl::Status InputError(absl::string_view name, absl::string_view problem) {
  return ReasonError(Reason::kInput, absl::StrCat("input ", name, " ", problem));
}

absl::StatusOr<std::vector<InputTensor>> FindInputs(const inference::ModelInferRequest& message,
                                                    std::span<const absl::string_view> names) {
  const bool has_raw = message.raw_input_contents_size() > 0;
  if (has_raw && message.raw_input_contents_size() != message.inputs_size()) {
    return ReasonError(
        Reason::kInput,
        absl::StrCat("raw_input_contents has ", message.raw_input_contents_size(), " entries for ",
                     message.inputs_size(), " inputs; expected one for each"));
  }
  std::vector<InputTensor> found(names.size());
  for (int i = 0; i < message.inputs_size(); ++i) {
    const InputHeader& header = message.inputs(i);
    size_t at = 0;
    while (at < names.size() && names[at] != header.name()) ++at;
    if (at == names.size()) {
      const bool is_text = header.name() == "text_input" || header.name() == "text_pair_input";
      return InputError(
          Printable(header.name()),
          absl::StrCat("is unknown; this model takes ", absl::StrJoin(names, ", "),
                       is_text ? "; for texts, its folder needs a tokenizer.json" : ""));
    }
    if (found[at].header != nullptr) return InputError(header.name(), "appears twice");
    SLUICE_RETURN_IF_ERROR(CheckHeader(header, has_raw));
    found[at] = {&header, has_raw ? &message.raw_input_contents(i) : nullptr};
  }
  return found;
}

absl::StatusOr<IntMatrix> ReadInts(const InputTensor& tensor, bool int64_allowed, Extent rows,
                                   Extent columns) {
  const InputHeader& header = *tensor.header;
  const bool wide = int64_allowed && header.datatype() == "INT64";
  if (!wide && header.datatype() != "INT32") {
    return WrongDatatype(header, int64_allowed ? "INT32 or INT64" : "INT32");
  }
  SLUICE_RETURN_IF_ERROR(CheckShape(header, rows, columns));

  IntMatrix matrix{
      .element_bytes = wide ? 8 : 4, .rows = header.shape(0), .columns = header.shape(1)};
  const int64_t elements = matrix.rows * matrix.columns;
  if (tensor.raw != nullptr) {
    const int64_t bytes = std::ssize(*tensor.raw);
    const int64_t expected = elements * matrix.element_bytes;
    if (bytes != expected) return WrongSize(header, bytes, expected, "raw bytes");
    matrix.data = tensor.raw->data();
    return matrix;
  }
  const inference::InferTensorContents& contents = header.contents();
  const int64_t typed = wide ? contents.int64_contents_size() : contents.int_contents_size();
  if (typed != elements) {
    return WrongSize(header, typed, elements, wide ? "int64_contents" : "int_contents");
  }
  SLUICE_RETURN_IF_ERROR(CheckOnlyKind(header, typed));
  matrix.data = wide ? reinterpret_cast<const char*>(contents.int64_contents().data())
                     : reinterpret_cast<const char*>(contents.int_contents().data());
  return matrix;
}

absl::StatusOr<FloatRows> ReadFloats(const InputTensor& tensor, Extent rows, Extent columns,
                                     int64_t width) {
  const InputHeader& header = *tensor.header;
  FloatRows floats{.bf16 = header.datatype() == "BF16", .width = width};
  if (!floats.bf16 && header.datatype() != "FP32") return WrongDatatype(header, "FP32 or BF16");
  SLUICE_RETURN_IF_ERROR(CheckShape(header, rows, columns, 3));
  SLUICE_RETURN_IF_ERROR(CheckDimension(header, 2, "values a position", {width, width}));
  floats.rows = header.shape(0);
  floats.columns = header.shape(1);
  // The size cannot overflow: there are at most 2^16 rows of 2^28 columns of 2^16 values of 4
  // bytes.
  const int64_t elements = floats.rows * floats.columns * width;
  if (tensor.raw != nullptr) {
    const int64_t bytes = std::ssize(*tensor.raw);
    const int64_t expected = elements * (floats.bf16 ? 2 : 4);
    if (bytes != expected) return WrongSize(header, bytes, expected, "raw bytes");
    floats.data = tensor.raw->data();
    return floats;
  }
  if (floats.bf16)
    return InputError(header.name(),
                      "has the datatype BF16, which is accepted only as raw_input_contents");
  const int64_t typed = header.contents().fp32_contents_size();
  if (typed != elements) return WrongSize(header, typed, elements, "fp32_contents");
  SLUICE_RETURN_IF_ERROR(CheckOnlyKind(header, typed));
  floats.data = reinterpret_cast<const char*>(header.contents().fp32_contents().data());
  return floats;
}

void FloatRows::Read(int64_t row, int64_t column, float* out) const {
  const int64_t first = (row * columns + column) * width;
  kernels::ConvertToFloat(data, bf16 ? kernels::DType::kBF16 : kernels::DType::kF32, first, width,
                          out);
}

absl::StatusOr<std::vector<std::string_view>> ReadStrings(const InputTensor& tensor, Extent rows) {
  const InputHeader& header = *tensor.header;
  if (header.datatype() != "BYTES") return WrongDatatype(header, "BYTES");
  SLUICE_RETURN_IF_ERROR(CheckShape(header, rows, {1, 1}));
  if (tensor.raw != nullptr) return WalkStrings(header, *tensor.raw);

  const inference::InferTensorContents& contents = header.contents();
  const int64_t typed = contents.bytes_contents_size();
  if (typed != header.shape(0)) return WrongSize(header, typed, header.shape(0), "bytes_contents");
  SLUICE_RETURN_IF_ERROR(CheckOnlyKind(header, typed));
  return std::vector<std::string_view>(contents.bytes_contents().begin(),
                                       contents.bytes_contents().end());
}

}  // namespace sluice
