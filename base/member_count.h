// The number of members of an aggregate, known to the compiler.
#pragma once

#include <cstddef>

namespace sluice {
namespace member_count_internal {

// Initialises a member of any type; never evaluated.
struct AnyMember {
  template <typename T>
  operator T() const;
};

}  // namespace member_count_internal

// A member that is a struct counts as one. Requires that no member is an array or a reference.
template <typename S, typename... Members>
consteval size_t MemberCount() {
  using member_count_internal::AnyMember;
  if constexpr (requires { S{Members{}..., AnyMember{}}; }) {
    return MemberCount<S, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

}  // namespace sluice
