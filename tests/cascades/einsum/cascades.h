// Cascades of tests.
#pragma once

#include <string_view>

#include "base/check.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/paper.h"
#include "cascades/einsum/text.h"
#include "gtest/gtest.h"

namespace sluice::einsum {

inline Cascade ParseOrDie(std::string_view text) {
  auto cascade = Parse(text);
  if (!cascade.ok()) ADD_FAILURE() << cascade.status() << " of " << text;
  SLUICE_CHECK(cascade.ok());
  return *std::move(cascade);
}

// Returns the cascade of the paper with that name.
inline Cascade Paper(std::string_view name) {
  for (const PaperCascade& each : PaperCascades()) {
    if (each.name == name) return ParseOrDie(each.text);
  }
  SLUICE_CHECK(false);
}

}  // namespace sluice::einsum
