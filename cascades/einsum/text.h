// Cascades as text. A complete example is causal attention in one pass over the keys by chunks of
// 512. The first chunk has a key for each query, so the maximum R is finite after it:
//
//   cascade attention
//   rank p = tokens
//   rank m = context
//   rank c = context / 512              # rounded up
//   rank j = 512
//   rank e = head_dim
//   rank f = head_dim
//   tensor Q[p, e] arena
//   tensor K[m, e] kv 2 bytes           # a value has 4 bytes by default
//   tensor V[m, f] kv 2 bytes
//   tensor Y[p, f] arena                # a result that is not listed lives in a tile
//   iterate c {
//     init R[p, 0] = -inf
//     init D[p, 0] = 0
//     init Z[p, f, 0] = 0
//     S[p, c, j] = Q[p, e] . K[c*512+j, e] :: map x(and) reduce e +(or)
//     L[p, c] = S[p, c, j] :: reduce j max(or) where c*512+j+end p <= p+end m
//     R[p, c+1] = R[p, c] . L[p, c] :: map max(or)
//     E[p, c] = R[p, c] . R[p, c+1] :: map -(left) unary exp
//     N[p, c, j] = S[p, c, j] . R[p, c+1] :: map -(left) unary exp where c*512+j+end p <= p+end m
//     B[p, c] = N[p, c, j] :: reduce j +(or)
//     G[p, c] = D[p, c] . E[p, c] :: map x(and)
//     D[p, c+1] = G[p, c] . B[p, c] :: map +(or)
//     U[p, f, c] = N[p, c, j] . V[c*512+j, f] :: map x(and) reduce j +(or)
//     W[p, f, c] = Z[p, f, c] . E[p, c] :: map x(and)
//     Z[p, f, c+1] = W[p, f, c] . U[p, f, c] :: map +(or)
//   }
//   Y[p, f] = Z[p, f, end c] . D[p, end c] :: map /(and)
//
// A line may be broken anywhere, and '#' begins a comment. The parts after '::' have this order,
// and each may be missing: `map OP(MERGE)`, of two operands, which is x(and) if it is missing;
// `unary FUNCTION`; `reduce RANK OP(MERGE)`, any number of times; `where` with conditions
// (<, <=, ==) between commas. An operand is a tensor, a number, inf or -inf. An index is a sum of
// ranks, multiples of ranks (512*c or c*512), numbers and at most one `end RANK`, the rank's size.
//
// The Unicode forms are read too, and printed on request: Z_{m, n} for Z[m, n], ⋀ or ∧ for map, ⋁_k
// or ∨_k for reduce k, · × ÷ − for . x / -, ∩ ∪ ← 1 for and or left all, ≤ for <=, ∞ for inf. `map
// k x(and)` and ⋀_k, which name ranks of the operands, are read as `map x(and)`.
//
// The shorthands of FuseMax (arXiv 2406.10491) are read too:
//
//   QK_{m,p} = Q_{e,p} × K_{e,m}          S[..] = Q[..] . K[..] :: map x(and) reduce e +(or)
//   GM_p = QK_{m,p} :: ∨_m max(∪)         a subscript of one rank needs no braces
//   SN_{m,p} = e^{QK_{m,p} − GM_p}        :: map -(left) unary exp; also exp(a - b)
//   RM_p = max(A_p, B_p)                  :: map max(or)
//   S_i = A_{k : k ≤ i}                   :: reduce k +(or) where k <= i
//
//   - Between operands, × x * / ÷ + − - are `map` with the merge MergeOf (lower_fuse.h), as are
//     max(a, b) and min(a, b). A function before parentheses is `unary`. `sub-then-exp` is both.
//   - In an einsum with subscripts, a rank of an operand that is neither in the result nor reduced
//     is summed.
//   - A_k is A at k if no tensor is named A_k, and k is a rank. A_k[] is the tensor A_k.
//   - K is the end of rank k if no rank is named K. `i : i = 2` in a subscript is 2.
//   - A text without `rank` and `tensor` lines declares every name by its use, see
//     infer_declarations.h.
//
// A stopping condition (⋄) is not read; `iterate` encloses the einsums of an iteration.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

inline constexpr size_t kMaxTextBytes = 64 * 1024;

// Returns the cascade, which Check accepts. Returns InvalidArgument with the line, the column and
// the expected text, or with the error of Check.
absl::StatusOr<Cascade> Parse(std::string_view text);

enum class Notation { kAscii, kUnicode };

// Returns the text that Parse reads as the same cascade, if Check accepts it.
std::string Print(const Cascade& cascade, Notation notation = Notation::kAscii);

// Returns the einsum on one line, without its end.
std::string Print(const Einsum& einsum, Notation notation = Notation::kAscii);

}  // namespace sluice::einsum
