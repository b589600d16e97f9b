// Converts messages to JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace sluice::client {

// Returns the message in the JSON mapping of proto3, with the original field names and including
// fields that are zero; null on failure.
nlohmann::json ToJson(const google::protobuf::Message& message);

}  // namespace sluice::client
