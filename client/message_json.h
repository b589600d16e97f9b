// Converts messages to JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace sluice::client {

// Returns the message by the JSON mapping of proto3, with the fields' original names and with
// fields that are zero; null on failure.
nlohmann::json ToJson(const google::protobuf::Message& message);

}  // namespace sluice::client
