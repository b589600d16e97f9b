// Precompiled for tests of targets that use gRPC.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled/rpc.h"
