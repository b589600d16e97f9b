// The exit codes of the process; the help text lists them.
#pragma once

namespace sluice::client {

inline constexpr int kExitOk = 0;
// The server refused or failed a request, the server is not healthy, or outputs differ.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;          // invalid arguments or input file
inline constexpr int kExitUnavailable = 3;    // no server answers, or it is shutting down
inline constexpr int kExitInterrupted = 130;  // by Ctrl-C; a shell reports the same code

}  // namespace sluice::client
