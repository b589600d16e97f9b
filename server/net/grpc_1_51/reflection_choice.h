// Chooses whether a server has gRPC's reflection service.
#pragma once

#include <memory>

#include "grpcpp/impl/server_builder_option.h"

namespace sluice {

// Returns an option for a server builder. Linking gRPC's reflection library adds reflection to
// every server of the process; the option removes it unless `wanted` is set.
std::unique_ptr<grpc::ServerBuilderOption> ChooseReflection(bool wanted);

}  // namespace sluice
