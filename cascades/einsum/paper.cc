#include "cascades/einsum/paper.h"

namespace sluice::einsum {
namespace {

constexpr PaperCascade kCascades[] = {
    {"attention_three_pass", 3, R"(cascade attention_three_pass
rank p = tokens
rank m = context
rank e = head_dim
rank f = head_dim
tensor Q[p, e] arena
tensor K[m, e] kv
tensor V[m, f] kv
tensor Y[p, f] arena
S[p, m] = Q[p, e] . K[m, e] :: map x(and) reduce e +(or)
G[p] = S[p, m] :: reduce m max(or)
N[p, m] = S[p, m] . G[p] :: map -(left) unary exp
D[p] = N[p, m] :: reduce m +(or)
A[p, m] = N[p, m] . D[p] :: map /(and)
Y[p, f] = A[p, m] . V[m, f] :: map x(and) reduce m +(or)
)"},
    {"attention_deferred_division", 2, R"(cascade attention_deferred_division
rank p = tokens
rank m = context
rank e = head_dim
rank f = head_dim
tensor Q[p, e] arena
tensor K[m, e] kv
tensor V[m, f] kv
tensor Y[p, f] arena
S[p, m] = Q[p, e] . K[m, e] :: map x(and) reduce e +(or)
G[p] = S[p, m] :: reduce m max(or)
N[p, m] = S[p, m] . G[p] :: map -(left) unary exp
D[p] = N[p, m] :: reduce m +(or)
Z[p, f] = N[p, m] . V[m, f] :: map x(and) reduce m +(or)
Y[p, f] = Z[p, f] . D[p] :: map /(and)
)"},
    {"attention_two_pass", 2, R"(cascade attention_two_pass
rank p = tokens
rank m = context
rank c = context / 512
rank j = 512
rank e = head_dim
rank f = head_dim
tensor Q[p, e] arena
tensor K[m, e] kv
tensor V[m, f] kv
tensor Y[p, f] arena
S[p, c, j] = Q[p, e] . K[c*512+j, e] :: map x(and) reduce e +(or)
L[p, c] = S[p, c, j] :: reduce j max(or)
N[p, c, j] = S[p, c, j] . L[p, c] :: map -(left) unary exp
B[p, c] = N[p, c, j] :: reduce j +(or)
G[p] = L[p, c] :: reduce c max(or)
E[p, c] = L[p, c] . G[p] :: map -(left) unary exp
D[p] = B[p, c] . E[p, c] :: map x(and) reduce c +(or)
W[p, c, j] = N[p, c, j] . E[p, c] :: map x(and)
Z[p, f] = W[p, c, j] . V[c*512+j, f] :: map x(and) reduce c +(or) reduce j +(or)
Y[p, f] = Z[p, f] . D[p] :: map /(and)
)"},
    {"attention_one_pass", 1, R"(cascade attention_one_pass
rank p = tokens
rank m = context
rank c = context / 512
rank j = 512
rank e = head_dim
rank f = head_dim
tensor Q[p, e] arena
tensor K[m, e] kv
tensor V[m, f] kv
tensor Y[p, f] arena
iterate c {
  init R[p, 0] = -inf
  init D[p, 0] = 0
  init Z[p, f, 0] = 0
  S[p, c, j] = Q[p, e] . K[c*512+j, e] :: map x(and) reduce e +(or)
  L[p, c] = S[p, c, j] :: reduce j max(or)
  R[p, c+1] = R[p, c] . L[p, c] :: map max(or)
  E[p, c] = R[p, c] . R[p, c+1] :: map -(left) unary exp
  N[p, c, j] = S[p, c, j] . R[p, c+1] :: map -(left) unary exp
  B[p, c] = N[p, c, j] :: reduce j +(or)
  T[p, c] = D[p, c] . E[p, c] :: map x(and)
  D[p, c+1] = T[p, c] . B[p, c] :: map +(or)
  U[p, f, c] = N[p, c, j] . V[c*512+j, f] :: map x(and) reduce j +(or)
  W[p, f, c] = Z[p, f, c] . E[p, c] :: map x(and)
  Z[p, f, c+1] = W[p, f, c] . U[p, f, c] :: map +(or)
}
Y[p, f] = Z[p, f, end c] . D[p, end c] :: map /(and)
)"},
};

}  // namespace

std::span<const PaperCascade> PaperCascades() { return kCascades; }

}  // namespace sluice::einsum
