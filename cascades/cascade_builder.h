// Builds a cascade, one einsum after another.
//
//   CascadeBuilder out("rms");
//   out.Rank("t", {"rows"}).Rank("d", {"hidden"}).Input("X", {"t", "d"});
//   out.Contract("S[t]", "d", "X[t,d]", "X[t,d]");
//   const einsum::Cascade cascade = std::move(out).Build("S");
//
// Accesses are written as in text.h. An index is a rank, or a rank and an offset. A result without
// a Tensor of its own lives in a tile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cascades/einsum/cascade.h"

namespace sluice {

class CascadeBuilder {
 public:
  explicit CascadeBuilder(std::string name) { cascade_.name = std::move(name); }

  // An operand: an access or a constant.
  struct Operand {
    Operand(const char* access) : text(access) {}         // NOLINT(google-explicit-constructor)
    Operand(const std::string& access) : text(access) {}  // NOLINT(google-explicit-constructor)
    Operand(double number) : constant(number) {}          // NOLINT(google-explicit-constructor)
    Operand(float number) : constant(double{number}) {}   // NOLINT(google-explicit-constructor)

    std::string text;
    double constant = 0;
  };

  CascadeBuilder& Rank(std::string name, einsum::Size size);
  // Declares a tensor that is read, or the home of a result.
  CascadeBuilder& Tensor(std::string name, std::vector<std::string> ranks, einsum::Home home,
                         double bytes_per_value);
  // Declares activations in the arena, of 4 bytes a value.
  CascadeBuilder& Input(std::string name, std::vector<std::string> ranks);

  // Each adds an einsum: out = function(a op b), and so on.
  CascadeBuilder& Map(const std::string& out, const Operand& a, einsum::Op op, const Operand& b,
                      einsum::Function function = einsum::Function::kNone);
  CascadeBuilder& Apply(const std::string& out, einsum::Function function, const Operand& a);
  CascadeBuilder& Copy(const std::string& out, const Operand& a);
  CascadeBuilder& Reduce(const std::string& out, const std::string& rank, einsum::Op op,
                         const Operand& a);
  // out = the sum over `rank` of a b.
  CascadeBuilder& Contract(const std::string& out, const std::string& rank, const Operand& a,
                           const Operand& b);
  // Adds a Map and returns `out`, as the operand of the next one.
  std::string Chain(const Operand& a, einsum::Op op, const Operand& b, std::string out);

  // Returns the cascade. Its result is in the arena unless it has a Tensor. If no result is named,
  // the only results are the Tensors.
  einsum::Cascade Build(const std::string& result = "") &&;

 private:
  void Add(const std::string& out, std::vector<Operand> in, einsum::Op op,
           einsum::Function function, std::vector<einsum::Reduction> reduce);

  einsum::Cascade cascade_;
};

}  // namespace sluice
