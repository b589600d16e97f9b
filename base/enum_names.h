// Names of enumerators. An enum that has names has one table of them, next to it:
//
//   enum class Trigger { kFull, kDelay };
//   constexpr auto EnumNamesOf(Trigger) {
//     using enum Trigger;
//     return EnumNameTable<Trigger>({{kFull, "full"}, {kDelay, "delay"}});
//   }
//
// A table that misses an enumerator, or has them in another order, does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace sluice {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

namespace enum_names_internal {

inline constexpr size_t kMostEnumerators = 32;

// Returns whether `value` is an enumerator. The compiler spells another number of the enum's type
// as a cast, "(Trigger)7".
template <auto value>
consteval bool IsEnumerator() {
  constexpr std::string_view kAssignment = "value = ";
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find(kAssignment) + kAssignment.size());
  const size_t cast = text.rfind(')');
  return cast == text.npos || text[cast + 1] == ':';  // as in "(anonymous namespace)::Trigger"
}

template <typename E, size_t... i>
consteval size_t CountEnumerators(std::index_sequence<i...>) {
  return (size_t{IsEnumerator<static_cast<E>(i)>()} + ...);
}

}  // namespace enum_names_internal

// The number of enumerators of E with values from 0 to 31.
template <typename E>
consteval size_t CountEnumerators() {
  using enum_names_internal::kMostEnumerators;
  return enum_names_internal::CountEnumerators<E>(std::make_index_sequence<kMostEnumerators>());
}

// Requires the enumerators 0, 1, 2 ... of E, all of them and in this order, with distinct names.
template <typename E, size_t n>
consteval std::array<EnumName<E>, n> EnumNameTable(const EnumName<E> (&rows)[n]) {
  static_assert(n == CountEnumerators<E>(), "every enumerator has a name");
  std::array<EnumName<E>, n> table{};
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(rows[i].value) != i) throw "the table has the order of the enum";
    for (size_t j = 0; j < i; ++j) {
      if (rows[j].name == rows[i].name) throw "two enumerators have the same name";
    }
    table[i] = rows[i];
  }
  return table;
}

template <typename E>
inline constexpr auto kEnumNames = EnumNamesOf(E{});

// The names alone, in the order of the enum.
template <typename E>
inline constexpr auto kNamesOf = [] {
  std::array<std::string_view, kEnumNames<E>.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kEnumNames<E>[i].name;
  return names;
}();

template <typename E>
constexpr std::string_view NameOf(E value) {
  const auto i = static_cast<size_t>(value);
  SLUICE_CHECK(i < kNamesOf<E>.size());
  return kNamesOf<E>[i];
}

// Returns nothing if no enumerator of E has the name.
template <typename E>
constexpr std::optional<E> EnumOf(std::string_view name) {
  for (const EnumName<E>& entry : kEnumNames<E>) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace sluice
