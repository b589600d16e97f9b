#pragma once

namespace sluice::load {

// The text of page.html, made part of the binary by the build.
extern const char kPageTemplate[];

}  // namespace sluice::load
