// The version of this build, "MAJOR.MINOR.PATCH".
#pragma once

#include <string_view>

namespace sluice {

std::string_view Version();

}  // namespace sluice
