// The first argument of every CPU kernel: how to compute (profile) and on which threads (pool). It
// plays the role of a stream on a GPU.
#pragma once

#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels {

struct Context {
  Profile profile;
  ThreadPool* pool;  // not owned
};

}  // namespace sluice::kernels
