#include "engine/cuda/dense_layers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/int8_check.h"

namespace sluice {
namespace {

// The most candidates of a class that are compared with the reference.
constexpr size_t kMaxTriedOfClass = 8;

// Calls run(slice, first) for the slices of args.rows rows. Each slice begins with row `first` of
// x.
template <typename Function>
void ForEachSlice(const DenseShape& shape, const DenseArgs& args, Function run) {
  const int32_t most = MaxRows(shape);
  for (int32_t first = 0; first < args.rows; first += most) {
    DenseArgs slice = args;
    slice.x = static_cast<const char*>(args.x) + first * (shape.k * shape.operand_bytes());
    slice.rows = TriedRows(shape, std::min(args.rows - first, most));
    run(slice, first);
  }
}

}  // namespace

size_t DenseLayers::Candidates::workspace_bytes() const {
  size_t bytes = 0;
  for (const LayerList& list : layers) {
    for (const auto& layer : list) bytes = std::max(bytes, layer->workspace_bytes());
  }
  return bytes;
}

DenseLayers::Candidates DenseLayers::Offered(const DenseShape& shape) {
  Candidates candidates = {.classes = ClassesOf(shape)};
  for (const RowClass& rows : candidates.classes) {
    candidates.layers.push_back(device_.DenseCandidates(shape, rows));
    candidates.of_table.push_back(PreferTable(shape, rows, &candidates.layers.back()));
  }
  return candidates;
}

template <typename Function>
auto DenseLayers::WithCheck(const DenseShape& shape, const void* weight, const void* bias,
                            const Candidates& candidates, Function f)
    -> decltype(f(std::declval<DenseCheck&>())) {
  const auto with = [&](auto check) -> decltype(f(std::declval<DenseCheck&>())) {
    SLUICE_RETURN_IF_ERROR(check.Prepare(device_, stream_, candidates.workspace_bytes()));
    return f(check);
  };
  if (shape.int8()) return with(Int8Check(shape, static_cast<const int8_t*>(weight)));
  return with(DenseCheck(shape, weight, bias));
}

template <typename Check>
absl::StatusOr<DenseLayers::LayerList> DenseLayers::Try(Check& check, const DenseShape& shape,
                                                        Candidates& candidates, size_t most) {
  LayerList passing;
  for (std::unique_ptr<DenseLayer>& layer : candidates.layers.back()) {
    if (passing.size() == most) break;
    const absl::Status status = check.Check(*layer, stream_);
    if (status.ok()) {
      passing.push_back(std::move(layer));
      continue;
    }
    SLUICE_RETURN_IF_ERROR(
        NoteRefusal(shape, "", *layer, layer.get() == candidates.of_table.back(), status));
  }
  if (passing.empty()) {
    notices_.push_back(absl::StrCat("our kernel computes ", ToString(shape),
                                    ", because none of the library's algorithms passes its trial"));
  }
  return passing;
}

template <typename Check>
absl::StatusOr<DenseLayers::LayerList> DenseLayers::TryClass(Check& check, const DenseShape& shape,
                                                             Candidates& candidates, size_t c,
                                                             const DenseLayer& reference,
                                                             size_t most) {
  LayerList passing;
  size_t tried = 0;
  for (std::unique_ptr<DenseLayer>& layer : candidates.layers[c]) {
    if (passing.size() == most || tried++ == kMaxTriedOfClass) break;
    if (layer->algorithm() == reference.algorithm()) break;
    const absl::Status status = check.CheckSame(*layer, candidates.classes[c], stream_);
    if (status.ok()) {
      passing.push_back(std::move(layer));
      continue;
    }
    SLUICE_RETURN_IF_ERROR(
        NoteRefusal(shape, absl::StrCat(", up to ", candidates.classes[c].last, " rows"), *layer,
                    layer.get() == candidates.of_table[c], status));
  }
  return passing;
}

absl::Status DenseLayers::NoteRefusal(const DenseShape& shape, const std::string& rows,
                                      const DenseLayer& layer, bool of_table,
                                      const absl::Status& why) {
  if (absl::IsUnavailable(why) || absl::IsResourceExhausted(why)) return why;
  if (of_table) {
    Refuse(absl::StrCat(ToString(shape), rows), why);
  } else if (!absl::IsFailedPrecondition(why)) {
    notices_.push_back(absl::StrCat("an algorithm for ", ToString(shape), rows,
                                    " is not used: ", layer.Describe(), ": ", why.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<DenseLayers::LayerList> DenseLayers::Passing(const DenseShape& shape,
                                                            const void* weight, const void* bias,
                                                            size_t most) {
  Candidates candidates = Offered(shape);
  if (candidates.layers.back().empty()) return LayerList();
  return WithCheck(shape, weight, bias, candidates, [&](auto& check) -> absl::StatusOr<LayerList> {
    return Try(check, shape, candidates, most);
  });
}

absl::StatusOr<std::map<int32_t, DenseLayers::LayerList>> DenseLayers::Members(
    const DenseShape& shape, const void* weight, const void* bias, const DenseLayer& reference) {
  using Lists = std::map<int32_t, LayerList>;
  Candidates candidates = Offered(shape);
  return WithCheck(shape, weight, bias, candidates, [&](auto& check) -> absl::StatusOr<Lists> {
    Lists members;
    SLUICE_RETURN_IF_ERROR(check.Check(reference, stream_));
    for (size_t c = 0; c + 1 < candidates.classes.size(); ++c) {
      SLUICE_ASSIGN_OR_RETURN(
          members[candidates.classes[c].last],
          TryClass(check, shape, candidates, c, reference, /*most=*/kMaxTriedOfClass));
    }
    return members;
  });
}

absl::StatusOr<const DenseFamily*> DenseLayers::Find(const DenseShape& shape, const void* weight,
                                                     const void* bias) {
  if (const auto found = families_.find(shape); found != families_.end()) {
    return found->second.get();
  }
  using Family = std::unique_ptr<DenseFamily>;
  Candidates candidates = Offered(shape);
  Family family;
  if (!candidates.layers.back().empty()) {
    const auto make = [&](auto& check) -> absl::StatusOr<Family> {
      SLUICE_ASSIGN_OR_RETURN(LayerList passing, Try(check, shape, candidates, /*most=*/1));
      if (passing.empty()) return Family();
      auto made = std::make_unique<DenseFamily>(shape, std::move(passing.front()));
      for (size_t c = 0; c + 1 < candidates.classes.size(); ++c) {
        SLUICE_ASSIGN_OR_RETURN(
            LayerList own, TryClass(check, shape, candidates, c, made->reference(), /*most=*/1));
        if (!own.empty()) made->Set(candidates.classes[c].last, std::move(own.front()));
      }
      return made;
    };
    SLUICE_ASSIGN_OR_RETURN(family, WithCheck(shape, weight, bias, candidates, make));
  }
  return (families_[shape] = std::move(family)).get();
}

const DenseLayer* DenseLayers::PreferTable(const DenseShape& shape, const RowClass& rows,
                                           LayerList* candidates) {
  const DenseAlgorithms* const algorithms = table_ == nullptr ? nullptr : table_->Find(shape);
  if (algorithms == nullptr) return nullptr;
  const DenseAlgorithm* algorithm = &algorithms->reference;
  std::string what = ToString(shape);
  if (rows.last < MaxRows(shape)) {
    const auto own = algorithms->of_classes.find(rows.last);
    if (own == algorithms->of_classes.end()) return nullptr;
    algorithm = &own->second;
    if (*algorithm == algorithms->reference) {
      candidates->clear();  // the class uses the reference
      return nullptr;
    }
    absl::StrAppend(&what, ", up to ", rows.last, " rows");
  }
  const auto named = std::find_if(candidates->begin(), candidates->end(), [&](const auto& layer) {
    return layer->algorithm() == *algorithm;
  });
  if (named == candidates->end()) {
    Refuse(what, absl::NotFoundError("its algorithm is not among the library's candidates"));
    return nullptr;
  }
  std::rotate(candidates->begin(), named, named + 1);
  return candidates->front().get();
}

AlgorithmTable DenseLayers::InUse(const std::string& gpu, const std::string& library) const {
  AlgorithmTable table(gpu, library);
  for (const auto& [shape, family] : families_) {
    if (family != nullptr) SLUICE_CHECK(table.Add(shape, family->algorithms(), "").ok());
  }
  return table;
}

std::vector<std::string> DenseLayers::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [shape, family] : families_) {
    if (family == nullptr) continue;
    std::string& line = lines.emplace_back(
        absl::StrCat(ToString(shape), ": reference ", family->reference().Describe()));
    family->ForEachClass([&](const RowClass& rows, const DenseLayer* own) {
      absl::StrAppend(&line, "; up to ", rows.last, " rows ",
                      own == nullptr ? "the reference" : own->Describe());
    });
  }
  return lines;
}

void DenseLayers::Refuse(const std::string& what, const absl::Status& why) {
  notices_.push_back(
      absl::StrCat("the table of algorithms is not followed for ", what, ": ", why.message()));
}

void RunInSlices(const DenseFamily& family, const DenseShape& shape, const DenseArgs& args,
                 DeviceStream& stream) {
  ForEachSlice(shape, args, [&](DenseArgs slice, int64_t first) {
    slice.out = static_cast<char*>(args.out) + first * (shape.n * shape.out_bytes());
    family.For(slice.rows).Run(slice, stream);
  });
}

template <typename T>
void RunInt8InSlices(const DenseFamily& family, const DenseShape& shape, const DenseArgs& args,
                     kernels::cuda::ScaleSumsArgs<T> scaled, DeviceStream& stream) {
  scaled.sums = static_cast<const int32_t*>(args.out);
  ForEachSlice(shape, args, [&](const DenseArgs& slice, int32_t first) {
    family.For(slice.rows).Run(slice, stream);
    scaled.first = first;
    scaled.rows.capacity = std::min(args.rows - first, MaxRows(shape));
    kernels::cuda::ScaleSums(stream, scaled);
  });
}

template void RunInt8InSlices(const DenseFamily&, const DenseShape&, const DenseArgs&,
                              kernels::cuda::ScaleSumsArgs<float>, DeviceStream&);
template void RunInt8InSlices(const DenseFamily&, const DenseShape&, const DenseArgs&,
                              kernels::cuda::ScaleSumsArgs<kernels::cuda::BFloat16>, DeviceStream&);

}  // namespace sluice
