#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/table.h"

namespace sluice::client {
namespace {

using TensorMetadata = inference::ModelMetadataResponse::TensorMetadata;

std::string Describe(const google::protobuf::RepeatedPtrField<TensorMetadata>& tensors) {
  return absl::StrJoin(tensors, " ", [](std::string* out, const TensorMetadata& tensor) {
    absl::StrAppend(out, tensor.name(), ":", tensor.datatype(), "[",
                    absl::StrJoin(tensor.shape(), ","), "]");
  });
}

// Returns what the server says of the model beside its tensors, or "-".
std::string PropertyOf(const inference::ModelMetadataResponse& metadata, const std::string& name) {
  const auto found = metadata.properties().find(name);
  return found == metadata.properties().end() ? "-" : found->second;
}

}  // namespace

int RunModels(const Arguments& arguments, const Connection& connection, const Console& console) {
  const auto index = connection.Index();
  if (!index.ok()) return Fail(index.status(), arguments, console);
  Table table({"NAME", "VERSION", "STATE", "PLATFORM", "PROFILE", "ATTENTION", "KERNELS", "INPUTS",
               "OUTPUTS"});
  for (const auto& model : index->models()) {
    const auto metadata = connection.Metadata(model.name(), model.version());
    // A model that is not ready is listed in the index, but has no metadata.
    const std::string state = model.reason().empty()
                                  ? model.state()
                                  : absl::StrCat(model.state(), " (", model.reason(), ")");
    table.AddRow({model.name(), model.version(), state, metadata.ok() ? metadata->platform() : "-",
                  metadata.ok() ? PropertyOf(*metadata, "profile") : "-",
                  metadata.ok() ? PropertyOf(*metadata, "attention") : "-",
                  metadata.ok() ? PropertyOf(*metadata, "kernels") : "-",
                  metadata.ok() ? Describe(metadata->inputs()) : "-",
                  metadata.ok() ? Describe(metadata->outputs()) : "-"});
  }
  *console.out << table.Render();
  return kExitOk;
}

}  // namespace sluice::client
