#pragma once

namespace sluice::load {

// The text of page.html, which the build embeds in the binary.
extern const char kPageTemplate[];

}  // namespace sluice::load
