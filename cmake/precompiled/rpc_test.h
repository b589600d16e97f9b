// Precompiled for tests of what speaks gRPC.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled/rpc.h"
