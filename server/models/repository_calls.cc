#include "server/models/repository_calls.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/request.h"
#include "server/common/status.h"

namespace sluice {
namespace {

using Parameter = inference::ModelRepositoryParameter;
using Parameters = google::protobuf::Map<std::string, Parameter>;

absl::Status CheckRepository(const std::string& repository) {
  if (repository.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("repository_name must be empty: there is only one repository");
}

absl::StatusOr<int64_t> ReadVersion(const Parameter& parameter) {
  int64_t version = parameter.int64_param();
  const bool number =
      parameter.has_int64_param() ||
      (parameter.has_string_param() && absl::SimpleAtoi(parameter.string_param(), &version));
  if (number && version >= 1 && version <= std::numeric_limits<int32_t>::max()) return version;
  return absl::InvalidArgumentError(absl::StrCat("parameter version: expected a number from 1 to ",
                                                 std::numeric_limits<int32_t>::max(),
                                                 ", as int64 or string"));
}

absl::StatusOr<std::string> ReadPath(const Parameter& parameter) {
  constexpr size_t kMostBytes = 4096;
  const std::string& path = parameter.string_param();
  if (parameter.has_string_param() && !path.empty() && path.size() <= kMostBytes &&
      path.find('\0') == std::string::npos) {
    return path;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("parameter path: expected a string of 1 to ", kMostBytes, " bytes"));
}

// What the parameters of a load or unload state.
struct Stated {
  std::optional<int64_t> version;
  std::string path;  // of an adapter to load
};

absl::StatusOr<Stated> Read(const Parameters& parameters, bool load) {
  Stated stated;
  for (const auto& [name, value] : parameters) {
    if (name == "unload_dependents") continue;
    if (name == "version") {
      SLUICE_ASSIGN_OR_RETURN(stated.version, ReadVersion(value));
    } else if (load && name == "path") {
      SLUICE_ASSIGN_OR_RETURN(stated.path, ReadPath(value));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown parameter ", Printable(name),
                       load ? "; known: version, path" : "; known: version"));
    }
  }
  return stated;
}

// Calls `act` with the name and the parameters of `request`, a load or unload request.
template <typename Request, typename Act>
absl::Status WithModelOf(const Request& request, const Act& act) {
  constexpr bool kLoad = std::is_same_v<Request, inference::RepositoryModelLoadRequest>;
  SLUICE_RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  SLUICE_ASSIGN_OR_RETURN(const Stated stated, Read(request.parameters(), kLoad));
  std::string_view name = request.model_name();
  const std::string_view adapter = AdapterOf(name);
  if (!adapter.empty()) name.remove_suffix(adapter.size() + 1);
  if (!IsRepositoryName(name) || (!adapter.empty() && !IsRepositoryName(adapter))) {
    return absl::InvalidArgumentError(
        absl::StrCat("model_name: ", Printable(request.model_name()),
                     " is not a valid model name; expected 1 to 128 of the characters "
                     "A-Z a-z 0-9 _ . -, and no dot at the start, or MODEL:ADAPTER"));
  }
  return act(request.model_name(), stated);
}

}  // namespace

absl::Status LoadModelOf(const inference::RepositoryModelLoadRequest& request,
                         ModelManager* models) {
  return WithModelOf(request, [&](const auto& name, const Stated& stated) {
    return models->Load(name, stated.version, stated.path);
  });
}

absl::Status UnloadModelOf(const inference::RepositoryModelUnloadRequest& request,
                           ModelManager* models) {
  return WithModelOf(request, [&](const auto& name, const Stated& stated) {
    return models->Unload(name, stated.version);
  });
}

absl::Status ListModels(const inference::RepositoryIndexRequest& request, ModelManager* models,
                        Reasons reasons, inference::RepositoryIndexResponse* response) {
  SLUICE_RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ModelManager::Entry> index, models->Index());
  for (const ModelManager::Entry& entry : index) {
    if (request.ready() && !entry.ready) continue;
    auto* model = response->add_models();
    model->set_name(entry.name);
    if (entry.version != 0) model->set_version(absl::StrCat(entry.version));
    model->set_state(entry.ready ? "READY" : "UNAVAILABLE");
    const bool in_full = entry.reason.empty() || entry.reason == ModelManager::kLoading ||
                         entry.reason == ModelManager::kNotLoaded || reasons == Reasons::kInFull;
    model->set_reason(in_full ? entry.reason
                              : "its files are refused; the admin address has the reason");
  }
  return absl::OkStatus();
}

}  // namespace sluice
