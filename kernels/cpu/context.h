// What every CPU kernel takes first: how to compute (profile) and on whom (pool). It plays the role
// that a stream plays on a GPU.
#pragma once

#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels {

struct Context {
  Profile profile;
  ThreadPool* pool;  // not owned
};

}  // namespace sluice::kernels
