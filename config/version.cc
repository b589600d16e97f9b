#include "config/version.h"

namespace sluice {

std::string_view Version() { return SLUICE_VERSION; }

}  // namespace sluice
