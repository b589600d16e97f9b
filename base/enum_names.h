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

// Returns whether `value` is an enumerator. The compiler spells another number of the enum's type
// as a cast, "(Trigger)7".
template <auto value>
consteval bool IsEnumerator() {
  std::string_view text = __PRETTY_FUNCTION__;
  const size_t cast = text.rfind(')');
  // In "(anonymous namespace)::Trigger" a colon follows, and in "IsEnumerator() [with" a space.
  return text[cast + 1] == ':' || text[cast + 1] == ' ';
}

}  // namespace enum_names_internal

// The number of enumerators of E. Requires that their values are 0, 1, 2 and so on.
template <typename E, size_t first = 0>
consteval size_t CountEnumerators() {
  if constexpr (enum_names_internal::IsEnumerator<static_cast<E>(first)>()) {
    return CountEnumerators<E, first + 1>();
  } else {
    return first;
  }
}

// Requires the enumerators 0, 1, 2 ... of E, all of them and in this order, with distinct names.
template <typename E, size_t n>
consteval std::array<EnumName<E>, n> EnumNameTable(const EnumName<E> (&rows)[n]) {
  static_assert(!enum_names_internal::IsEnumerator<static_cast<E>(n)>(),
                "every enumerator has a name");
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

// The names, in the order of the enum.
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
