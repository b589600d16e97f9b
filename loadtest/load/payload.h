// Serialises the requests before the run, so that sending one costs the client only a reference to
// its bytes.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load/arrivals.h"

namespace sluice::load {

struct PayloadOptions {
  std::string model = "demo";
  int adapters = 0;                 // calls are for MODEL:a0 to MODEL:a<adapters - 1>; 0: for MODEL
  std::string version;              // empty leaves the choice to the server
  std::string input = "input_ids";  // tensor [1, tokens] of token ids
  bool int64 = false;               // datatype INT64 instead of INT32
  bool batch_dimension = true;      // false for shape [tokens], for models without a row dimension
  bool typed = false;               // send in `contents` instead of raw_input_contents
  int32_t vocab = 256;              // ids are drawn from [0, vocab)
  // Number of different contents per (length, max_tokens), used in turn. By default all requests of
  // a phase differ, so that none reuses the pages of another.
  int variants = 1 << 20;
  std::vector<std::string> outputs;  // the outputs to request; empty for the server's default
  std::map<std::string, std::string> parameters;  // sent as int64, bool or string
  uint64_t seed = 1;
};

struct Payload {
  grpc::Slice bytes;  // a serialised ModelInferRequest without an id
  uint64_t key = 0;   // identifies the bytes, with the same value in every run
  int32_t tokens = 0;
};

// The distinct requests of all phases of a session. It grows between phases and is not thread-safe
// while it grows.
class PayloadPool {
 public:
  explicit PayloadPool(PayloadOptions options) : options_(std::move(options)) {}

  // Adds the missing requests and returns the index into payloads() of each arrival.
  // Returns ResourceExhausted if the pool would exceed 2 GiB.
  absl::StatusOr<std::vector<uint32_t>> Assign(const std::vector<Arrival>& arrivals);

  const std::vector<Payload>& payloads() const { return payloads_; }

 private:
  Payload Make(int32_t tokens, int32_t max_tokens, int variant) const;

  const PayloadOptions options_;
  std::vector<Payload> payloads_;
  std::map<std::tuple<int32_t, int32_t, int>, uint32_t> index_;  // (tokens, max_tokens, variant)
  size_t bytes_ = 0;
};

// Returns the 64-bit FNV-1a hash.
uint64_t HashBytes(const void* bytes, size_t size, uint64_t hash = 0xcbf29ce484222325);

}  // namespace sluice::load
