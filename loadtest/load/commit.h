#pragma once

namespace sluice::load {

// What `git describe --always --dirty` said when this was built; "unknown" outside a repository.
extern const char kCommit[];

}  // namespace sluice::load
