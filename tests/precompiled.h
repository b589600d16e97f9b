// Precompiled for the tests: what nearly all of them include, and none of our own headers, whose change
// would compile every test again. A test still includes what it uses.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
