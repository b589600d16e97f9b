// Asserts that the workarounds in this folder are still needed; see README.md beside it.
#pragma once

#include "grpcpp/version_info.h"

static_assert(
    GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51,
    "server/net/grpc_1_51 works around gRPC 1.51. For another version read its README.md: "
    "it says which files that version makes superfluous and what to check of the others.");
