// The first argument of every CPU kernel: the profile, which selects the computation, and the pool
// of threads. It plays the role of a stream on a GPU.
#pragma once

#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels {

struct Context {
  Profile profile;
  ThreadPool* pool;  // not owned
};

}  // namespace sluice::kernels
