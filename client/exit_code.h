// The exit codes of the process; the help text lists them.
#pragma once

namespace sluice::client {

inline constexpr int kExitOk = 0;
// The server refused or failed a request, it is not healthy, or outputs differ.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;          // wrong arguments or input file
inline constexpr int kExitUnavailable = 3;    // there is no server, or it is shutting down
inline constexpr int kExitInterrupted = 130;  // by Ctrl-C; a shell reports the same code

}  // namespace sluice::client
