// The notation of FuseMax (arXiv 2406.10491): the cascades of the paper, and errors with their
// place.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/interpreter.h"
#include "cascades/einsum/text.h"
#include "gtest/gtest.h"
#include "kernels/reference/attention.h"
#include "tests/cascades/einsum/cascades.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

struct NotationRow {
  const char* name;
  const char* text;
  const char* ascii;  // the last einsum
};

class NotationTable : public TableTest<NotationRow> {};

TEST_P(NotationTable, IsReadWithoutDeclarations) {
  const Cascade cascade = ParseOrDie(row().text);
  EXPECT_EQ(Print(*AllEinsums(cascade).back().einsum), row().ascii);
  for (const Notation notation : {Notation::kAscii, Notation::kUnicode}) {
    EXPECT_EQ(ParseOrDie(Print(cascade, notation)), cascade) << Print(cascade, notation);
  }
}

const NotationRow kNotationRows[] = {
    {"TheWholeForm", "Z_{m,n} = A_{k,m} · B_{k,n} :: ⋀_k ×(∩) ⋁_k +(∪)",
     "Z[m, n] = A[k, m] . B[k, n] :: map x(and) reduce k +(or)"},
    {"LogicalSigns", "Z_{m,n} = A_{k,m} · B_{k,n} :: ∧_k ×(∩) ∨_k +(∪)",
     "Z[m, n] = A[k, m] . B[k, n] :: map x(and) reduce k +(or)"},
    {"SignsWithoutUnderscores", "Z_{m,n} = A_{k,m} · B_{k,n} :: ∧k ×(∩) ∨k +(∪)",
     "Z[m, n] = A[k, m] . B[k, n] :: map x(and) reduce k +(or)"},
    {"OneColon", "Z_m = A_{k,m} × B_k : ⋁_{k} +(∪)",
     "Z[m] = A[k, m] . B[k] :: map x(and) reduce k +(or)"},
    {"SumsAreLeftOut", "Z_{m,n} = A_{k,m} × B_{k,n}",
     "Z[m, n] = A[k, m] . B[k, n] :: map x(and) reduce k +(or)"},
    {"AScalarResult", "Y = A_k × B_k", "Y = A[k] . B[k] :: map x(and) reduce k +(or)"},
    {"SeveralRanksOfAReduction", "GM_p = QK_{m,p,b} :: ⋁_{m,b} max(∪)",
     "GM[p] = QK[m, p, b] :: reduce m max(or) reduce b max(or)"},
    {"AnExponential", "SN_{m,p} = e^{QK_{m,p} − GM_p}",
     "SN[m, p] = QK[m, p] . GM[p] :: map -(left) unary exp"},
    {"ExpAsAFunction", "SN_{m,p} = exp(QK_{m,p} - GM_p)",
     "SN[m, p] = QK[m, p] . GM[p] :: map -(left) unary exp"},
    {"SubThenExp", "SN_{m,p} = QK_{m,p} · GM_p :: ⋀_m sub-then-exp(𝟙)",
     "SN[m, p] = QK[m, p] . GM[p] :: map -(all) unary exp"},
    {"AFunctionOfATensor", "Z_m = σ(A_m)", "Z[m] = A[m] :: unary sigmoid"},
    {"AMaximum", "RM_p = max(A_p, B_p)", "RM[p] = A[p] . B[p] :: map max(or)"},
    {"AQuotient", "A_{m,p} = SN_{m,p} / SD_p", "A[m, p] = SN[m, p] . SD[p] :: map /(and)"},
    {"ADivisionSign", "A_{m,p} = SN_{m,p} ÷ SD_p", "A[m, p] = SN[m, p] . SD[p] :: map /(and)"},
    {"ASum", "Z_p = A_p + B_p", "Z[p] = A[p] . B[p] :: map +(or)"},
    {"AnAsteriskAndAnX", "Y_k = A_k * 2 Z_k = Y_k x Y_k", "Z[k] = Y[k] . Y[k] :: map x(and)"},
    {"AResultNamedX", "Z[p] = A[p] x[p] = Z[p]", "x[p] = Z[p]"},
    {"AResultNamedXAfterACondition", "Z[p] = A[p] :: where p < 2 x[p] = Z[p]", "x[p] = Z[p]"},
    {"AResultNamedXAfterARank", "Z[p] = A[p] :: where 1 <= p x_{p} = Z_p", "x[p] = Z[p]"},
    {"APrefixSum", "S_i = A_{k : k ≤ i}", "S[i] = A[k] :: reduce k +(or) where k <= i"},
    {"ASwappedCondition", "S_i = A_{k : i ≥ k}", "S[i] = A[k] :: reduce k +(or) where k <= i"},
    {"AConditionOfAProduct", "S_i = A_{k : k < i} × B_k",
     "S[i] = A[k] . B[k] :: map x(and) reduce k +(or) where k < i"},
    {"OneConditionOfBoth", "S_i = A_{k : k < i} + B_{k : k < i}",
     "S[i] = A[k] . B[k] :: map +(or) reduce k +(or) where k < i"},
    {"AConditionOfTheResult", "S_{i : i < 3} = A_i", "S[i] = A[i] :: where i < 3"},
    {"OnePlace", "Y_p = A_{p,i} Z_p = A_{p, i : i = 2}", "Z[p] = A[p, 2]"},
    {"ATensorWithAnUnderscore", "A_k[] = 1 Z = A_k", "Z = A_k[]"},
    {"TheEndOfARank",
     "rank k = n tensor A[k] arena tensor Z arena iterate k { init R_{k:k=0} = 0 "
     "R_{k+1} = R_k + A_k } Z = R_{K}",
     "Z = R[end k]"},
};
SLUICE_TABLE(NotationTable, kNotationRows);

struct PlaceRow {
  const char* name;
  const char* text;
  const char* error;
};

class PlaceTable : public TableTest<PlaceRow> {};

TEST_P(PlaceTable, IsRefusedWithItsTokenAndColumn) {
  const auto cascade = Parse(row().text);
  EXPECT_EQ(cascade.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(cascade.status().message()), row().error);
}

const PlaceRow kPlaceRows[] = {
    {"ThreeOperands", "Z_k = A_k + B_k × C_k",
     "line 1, column 17: expected '::' or the next einsum, because an einsum has at most two "
     "operands, found 'x'"},
    {"AStoppingCondition", "Z_k = A_k\n⋄: k ≥ 3",
     "line 2, column 1: expected rank, tensor, iterate or a result, found '⋄'"},
    {"AnUnknownSign", "Z_k = A_k ⊕ B_k",
     "line 1, column 11: expected rank, tensor, iterate or a result, found '⊕'"},
    {"ColumnsAreCharacters", "Z_k = ∞ · A_k :: ⋀ ⊕(∩)",
     "line 1, column 20: expected an operation (+, -, x, /, max or min), found '⊕'"},
    {"ARightMerge", "Z_k = A_k · B_k :: ⋀_k ÷(→)",
     "line 1, column 26: expected a merge (and, or, left or all), found '→'"},
    {"TwoMaps", "Z_k = A_k × B_k :: ⋀ ×(∩)",
     "line 1, column 20: expected unary, reduce or where, found 'map'"},
    {"ASymbolicFactor", "Z_{c,j} = K_{c × J0 + j}",
     "line 1, column 18: expected an integer up to 2^31, found 'J0'"},
    {"AResultAtTheNextPlace", "S_{i+1} = A_{k : k ≤ i}",
     "line 1, column 1: an index of the result 'S' is not a single rank. Only an einsum within "
     "`iterate` may write at other places."},
    {"AConditionOfOneSummand", "S_i = A_{k : k < i} + B_k",
     "line 1, column 12: the condition after ':' holds for one operand of +(or). Give the other "
     "operand the same condition, or write it after `where`."},
    {"ARankThatAMaximumLeaves", "Z_p = A_{m,p,b} :: ⋁_m max(∪)",
     "line 1, column 1: 'Z' has no rank 'b' and does not reduce it. A rank is summed without a "
     "`reduce` only if all reductions are +(or)."},
    {"AConditionWithoutAComparison", "S_i = A_{k : k}",
     "line 1, column 15: expected '<', '<=', '==', '>' or '>=', found '}'"},
    {"AnUnclosedExponential", "S_i = e^{A_i :: unary exp",
     "line 1, column 14: expected '}', found '::'"},
    {"AnInputAtComposedIndices", "Z_{c,j} = K_{c*2+j}",
     "tensor 'K' is read at composed indices only, so its ranks are unknown. Declare the ranks and "
     "tensors of the cascade, such as `rank m = context` and `tensor K[m, e] arena`."},
};
SLUICE_TABLE(PlaceTable, kPlaceRows);

// Cascade 4 of the paper.
constexpr const char* kThreePasses = R"(
  QK_{m,p} = Q_{e,p} × K_{e,m}
  GM_p = QK_{m,p} :: ⋁_m max(∪)
  SN_{m,p} = e^{QK_{m,p} − GM_p}
  SD_p = SN_{m,p}
  A_{m,p} = SN_{m,p} / SD_p
  AV_{f,p} = A_{m,p} × V_{f,m}
)";

// Cascade 5 of the paper. Its partitions need declared ranks, and its iteration is in braces.
constexpr const char* kOnePass = R"(
  rank e = e  rank f = f  rank m = m  rank p = p
  rank m1 = m / 3  rank m0 = 3
  tensor Q_{e,p} arena  tensor K_{e,m} arena  tensor V_{f,m} arena  tensor AV_{f,p} arena
  BK_{e,m1,m0} = K_{e, m1 × 3 + m0}
  BV_{f,m1,m0} = V_{f, m1 × 3 + m0}
  iterate m1 {
    init RM_{m1:m1=0,p} = −∞
    init RD_{m1:m1=0,p} = 0
    init RNV_{f,m1:m1=0,p} = 0
    BQK_{m1,m0,p} = Q_{e,p} × BK_{e,m1,m0}
    LM_{m1,p} = BQK_{m1,m0,p} :: ⋁_{m0} max(∪)
    RM_{m1+1,p} = max(RM_{m1,p}, LM_{m1,p})
    SLN_{m1,m0,p} = e^{BQK_{m1,m0,p} − RM_{m1+1,p}}
    SLD_{m1,p} = SLN_{m1,m0,p}
    SLNV_{f,m1,p} = SLN_{m1,m0,p} × BV_{f,m1,m0}
    PRM_{m1,p} = e^{RM_{m1,p} − RM_{m1+1,p}}
    SPD_{m1,p} = RD_{m1,p} × PRM_{m1,p}
    RD_{m1+1,p} = SLD_{m1,p} + SPD_{m1,p}
    SPNV_{f,m1,p} = RNV_{f,m1,p} × PRM_{m1,p}
    RNV_{f,m1+1,p} = SLNV_{f,m1,p} + SPNV_{f,m1,p}
  }
  AV_{f,p} = RNV_{f,M1,p} / RD_{M1,p}
)";

// Returns the transpose of a matrix [rows, columns].
std::vector<double> Transposed(const std::vector<double>& matrix, int64_t rows, int64_t columns) {
  std::vector<double> result(matrix.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  }
  return result;
}

TEST(Notation, ThePapersOwnTextComputesAttention) {
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    const auto values = [&](int64_t count) {
      std::vector<double> drawn;
      for (; count > 0; --count) drawn.push_back(static_cast<double>(draw(600) - 300) / 100);
      return drawn;
    };
    const int64_t dim = draw(4), context = draw(15), tokens = draw(context);
    const std::vector<double> q = values(dim * tokens), k = values(dim * context),
                              v = values(dim * context);
    const std::vector<double> expected = kernels::reference::Attention(
        {1, 1, dim}, Transposed(q, dim, tokens), Transposed(k, dim, context),
        Transposed(v, dim, context), context - tokens, /*causal=*/false, 1);
    for (const char* const text : {kThreePasses, kOnePass}) {
      const auto results = Interpret(
          ParseOrDie(text), {{"e", dim}, {"f", dim}, {"m", context}, {"p", tokens}},
          {{"Q", {{dim, tokens}, q}}, {"K", {{dim, context}, k}}, {"V", {{dim, context}, v}}});
      ASSERT_TRUE(results.ok()) << results.status();
      const std::vector<double> actual = Transposed(results->at("AV").values, dim, tokens);
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-12);
    }
  }
}

TEST(Notation, ThePapersCascadesHaveTheirPasses) {
  EXPECT_EQ(Passes(ParseOrDie(kThreePasses), "m"), 3);
  EXPECT_EQ(Passes(ParseOrDie(kOnePass), "m"), 1);
}

TEST(Notation, DeclaresNamesByTheirUse) {
  EXPECT_EQ(Print(ParseOrDie(kThreePasses)).substr(0, 160),
            "rank m = m\nrank p = p\nrank e = e\nrank f = f\n"
            "tensor Q[e, p] arena\ntensor K[e, m] arena\ntensor V[f, m] arena\n"
            "tensor AV[f, p] arena\nQK[m, p] = Q[e, p] . K[e, m] ::");
}

}  // namespace
}  // namespace sluice::einsum
