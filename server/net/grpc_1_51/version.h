// Asserts that the workarounds in this folder are still needed; see README.md in this folder.
#pragma once

#include "grpcpp/version_info.h"

static_assert(GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51,
              "server/net/grpc_1_51 works around gRPC 1.51. For another version read its "
              "README.md: it lists the condition for deleting each file and the tests to run.");
