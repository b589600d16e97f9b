// Runs a daemon for a measurement, on its own ports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "loadtest/bench/daemon/process.h"
#include "loadtest/load/transport.h"

namespace sluice::loadtest {

class Daemon {
 public:
  // Starts `sluiced` with the model in directory `model`, named kModel, and further `flags`.
  // Returns when it is ready.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::string& sluiced,
                                                       const std::string& model,
                                                       const std::vector<std::string>& flags);

  const ChildProcess& process() const { return process_; }
  const client::Connection& connection() const { return connection_; }
  const std::string& metrics_address() const { return metrics_address_; }
  const load::Channels& channels() const { return channels_; }

 private:
  Daemon(ChildProcess process, const std::string& address, std::string metrics_address,
         load::Channels channels);

  const ChildProcess process_;
  const client::Connection connection_;
  const std::string metrics_address_;
  const load::Channels channels_;
};

}  // namespace sluice::loadtest
