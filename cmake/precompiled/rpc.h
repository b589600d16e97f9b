// Precompiled for targets that use gRPC, and for tools that write JSON. The generated headers
// change only when the protocol does.
#pragma once

#include <grpcpp/grpcpp.h>

#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "cmake/precompiled/base.h"
#include "proto/admin.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
