// The version of this build, "MAJOR.MINOR.PATCH".
#pragma once

namespace sluice {

const char* Version();

}  // namespace sluice
