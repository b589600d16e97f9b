// How the process ends; the help text lists these.
#pragma once

namespace sluice::client {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed =
    1;  // the server refused or failed a request; not healthy; outputs differ
inline constexpr int kExitUsage = 2;          // wrong arguments or input file
inline constexpr int kExitUnavailable = 3;    // no server there, or it is shutting down
inline constexpr int kExitInterrupted = 130;  // by Ctrl-C; what a shell says of such a process

}  // namespace sluice::client
