// Messages as JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace sluice::client {

// The mapping of proto3, with the fields' own names and those that are zero; null on failure.
nlohmann::json ToJson(const google::protobuf::Message& message);

}  // namespace sluice::client
