#include "cascades/einsum/terms_of.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cascades/einsum/conditions.h"
#include "cascades/einsum/lower_fuse.h"

namespace sluice::einsum {
namespace {

using Renaming = std::map<std::string, std::string>;

template <typename... Args>
absl::Status Refuse(const std::string& result, const Args&... args) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", result, "' cannot be rewritten: ", args..., "."));
}

bool Contains(const std::vector<Condition>& all, const std::vector<Condition>& some) {
  return std::ranges::all_of(
      some, [&](const Condition& each) { return std::ranges::find(all, each) != all.end(); });
}

void Rename(const Renaming& renaming, Index* index) {
  for (Index::Term& term : index->terms) {
    if (const auto found = renaming.find(term.rank); found != renaming.end()) {
      term.rank = found->second;
    }
  }
}

class Converter {
 public:
  Converter(TermPool& pool, const Cascade& cascade) : pool_(pool), cascade_(cascade) {
    for (const Rank& rank : cascade.ranks) pool_.DeclareRank(rank);
  }

  absl::StatusOr<CascadeTerms> Run() {
    for (const Statement& statement : cascade_.statements) {
      const auto* const einsum = std::get_if<Einsum>(&statement);
      if (einsum == nullptr) {
        const auto& iteration = std::get<Iteration>(statement);
        return Refuse(iteration.body[0].out.tensor, "it is computed by an iteration over '",
                      iteration.rank, "'. Write its definition with reductions");
      }
      SLUICE_RETURN_IF_ERROR(Convert(*einsum));
    }
    for (const Tensor& tensor : AllTensors(cascade_)) {
      const auto result = results_.find(tensor.name);
      if (result == results_.end()) continue;
      const bool is_read = std::ranges::any_of(AllEinsums(cascade_), [&](const auto& placed) {
        return Reads(*placed.einsum, tensor.name);
      });
      if (is_read && tensor.home == Home::kTile) continue;
      for (const std::string& rank : tensor.ranks) {
        if (pool_.HasRank(result->second.term, rank)) continue;
        return Refuse(tensor.name, "no operand has its rank '", rank, "'");
      }
      Access whole = AccessOf(tensor.name, tensor.ranks);
      terms_.outputs.push_back({tensor, result->second.term, domains_.Of(whole)});
    }
    return std::move(terms_);
  }

 private:
  struct Value {
    TermId term;
    std::vector<Condition> where = {};  // where it has values
    bool complete = true;               // whether it has one wherever `where` holds
  };
  struct Result {
    TermId term;
    std::vector<std::string> ranks;
    bool complete;
  };

  absl::Status Convert(const Einsum& einsum) {
    const std::string& name = einsum.out.tensor;
    SLUICE_ASSIGN_OR_RETURN(Value value, Operand(name, einsum.in[0]));
    if (einsum.in.size() == 2) {
      SLUICE_ASSIGN_OR_RETURN(const Value right, Operand(name, einsum.in[1]));
      SLUICE_RETURN_IF_ERROR(CheckMerge(einsum, value, right));
      value.term = pool_.Map(einsum.map, value.term, right.term);
      value.complete &= right.complete;
    }
    if (einsum.unary != Function::kNone) value.term = pool_.Unary(einsum.unary, value.term);
    for (size_t i = einsum.reduce.size(); i > 0; --i) {
      const Reduction& each = einsum.reduce[i - 1];
      const bool innermost = i == einsum.reduce.size();
      if (each.merge == Merge::kAll && (!value.complete || !einsum.where.empty())) {
        return Refuse(name, "its reduction counts missing values as 0 (all)");
      }
      value.term = pool_.Reduce(each.op, each.rank, value.term,
                                innermost ? einsum.where : std::vector<Condition>{});
      value.complete &= std::ranges::none_of(
          einsum.where, [&](const Condition& where) { return NamesRank(where, each.rank); });
    }
    if (!einsum.reduce.empty()) terms_.reductions.push_back({name, value.term});
    std::vector<std::string> ranks = RanksOf(einsum);
    ranks.resize(einsum.out.indices.size());
    results_[name] = {value.term, std::move(ranks), value.complete};
    domains_.Add(einsum);
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Operand(const std::string& reader, const Access& access) {
    if (access.is_constant()) return Value{pool_.Constant(access.constant)};
    const auto result = results_.find(access.tensor);
    if (result == results_.end()) return Input(access);
    Renaming renaming;
    for (size_t i = 0; i < access.indices.size(); ++i) {
      const std::string* const rank = SingleRank(access.indices[i]);
      const std::string& own = result->second.ranks[i];
      if (rank == nullptr || pool_.RankOf(*rank).size != pool_.RankOf(own).size) {
        return Refuse(reader, "it reads the result '", access.tensor,
                      "' at another place than a single rank of the size of '", own, "'");
      }
      if (*rank != own) renaming[own] = *rank;
    }
    Value value{.term = result->second.term,
                .where = domains_.Of(access),
                .complete = result->second.complete};
    if (!renaming.empty()) {
      SLUICE_ASSIGN_OR_RETURN(value.term, Renamed(reader, access.tensor, value.term, renaming));
    }
    return value;
  }

  Value Input(const Access& access) {
    const Tensor& tensor = *std::ranges::find(cascade_.tensors, access.tensor, &Tensor::name);
    Value value{.term = access.indices.empty() ? pool_.Input(tensor)
                                               : pool_.Input(tensor, access.indices)};
    for (size_t i = 0; i < access.indices.size(); ++i) {
      const std::string* const rank = SingleRank(access.indices[i]);
      value.complete &=
          rank != nullptr && pool_.RankOf(*rank).size == pool_.RankOf(tensor.ranks[i]).size;
    }
    return value;
  }

  // Returns the term with other names of its free ranks.
  absl::StatusOr<TermId> Renamed(const std::string& reader, const std::string& tensor, TermId term,
                                 const Renaming& renaming) {
    Term node = pool_.TermOf(term);
    Renaming inner = renaming;
    if (node.kind == TermKind::kReduce) {
      inner.erase(node.rank);
      const bool captures =
          std::ranges::any_of(inner, [&](const auto& names) { return names.second == node.rank; });
      if (captures) {
        return Refuse(reader, "it reads the result '", tensor, "' at rank '", node.rank,
                      "', over which '", tensor, "' is reduced. Use another rank");
      }
    }
    for (TermId& arg : node.args) {
      SLUICE_ASSIGN_OR_RETURN(arg, Renamed(reader, tensor, arg, inner));
    }
    for (Index& index : node.access.indices) Rename(inner, &index);
    for (Condition& condition : node.where) {
      Rename(inner, &condition.left);
      Rename(inner, &condition.right);
    }
    return pool_.Add(std::move(node));
  }

  static absl::Status CheckMerge(const Einsum& einsum, const Value& left, const Value& right) {
    const Merge merge = einsum.map_merge;
    const bool same_points = merge == Merge::kAnd ||
                             (merge == Merge::kLeft && Contains(left.where, right.where)) ||
                             (merge == Merge::kOr && Contains(left.where, right.where) &&
                              Contains(right.where, left.where)) ||
                             (merge == Merge::kAll && left.where.empty() && right.where.empty());
    const std::string action =
        absl::StrCat(std::string(NameOf(einsum.map)), "(", std::string(NameOf(merge)), ")");
    if (!same_points) {
      return Refuse(einsum.out.tensor, "the operands of ", action,
                    " have values at different points");
    }
    if (merge == MergeOf(einsum.map) || (left.complete && right.complete)) return absl::OkStatus();
    return Refuse(einsum.out.tensor, "an operand of ", action, " may lack a value");
  }

  TermPool& pool_;
  const Cascade& cascade_;
  ResultDomains domains_;
  std::map<std::string, Result> results_;
  CascadeTerms terms_;
};

}  // namespace

absl::StatusOr<CascadeTerms> TermsOf(TermPool& pool, const Cascade& cascade) {
  SLUICE_ASSIGN_OR_RETURN(const Cascade carried, CarryConditions(cascade));
  return Converter(pool, carried).Run();
}

}  // namespace sluice::einsum
