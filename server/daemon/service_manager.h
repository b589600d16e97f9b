// Messages to the service manager that started this process, such as systemd.
#pragma once

#include <string_view>

namespace sluice {

// Sends `state`, such as "READY=1", to the datagram socket in the environment variable
// NOTIFY_SOCKET (sd_notify(3)). Does nothing without this variable. Ignores errors, because the
// daemon serves in either case.
void NotifyServiceManager(std::string_view state);

}  // namespace sluice
