#pragma once

namespace sluice::load {

// The output of `git describe --always --dirty` at build time, or "unknown" outside a repository.
extern const char kCommit[];

}  // namespace sluice::load
