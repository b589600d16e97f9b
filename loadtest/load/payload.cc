#include "loadtest/load/payload.h"

#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/inference.pb.h"

namespace sluice::load {
namespace {

constexpr size_t kMaxPoolBytes = size_t{2} << 30;

void FillTyped(const std::vector<int32_t>& ids, bool int64, inference::InferTensorContents* to) {
  for (int32_t id : ids) {
    if (int64) {
      to->add_int64_contents(id);
    } else {
      to->add_int_contents(id);
    }
  }
}

// Returns the ids as little-endian bytes, the order of the supported machines.
std::string Raw(const std::vector<int32_t>& ids, bool int64) {
  if (int64) {
    const std::vector<int64_t> wide(ids.begin(), ids.end());
    return {reinterpret_cast<const char*>(wide.data()), wide.size() * sizeof(int64_t)};
  }
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

void SetParameter(const std::string& name, const std::string& value,
                  inference::ModelInferRequest* request) {
  inference::InferParameter& parameter = (*request->mutable_parameters())[name];
  int64_t integer = 0;
  if (absl::SimpleAtoi(value, &integer)) {
    parameter.set_int64_param(integer);
  } else if (value == "true" || value == "false") {
    parameter.set_bool_param(value == "true");
  } else {
    parameter.set_string_param(value);
  }
}

// Returns the name of the model, or of one of its adapters, drawn evenly.
std::string DrawModel(const PayloadOptions& options, int32_t tokens, int variant) {
  if (options.adapters == 0) return options.model;
  std::seed_seq seeds{options.seed, static_cast<uint64_t>(tokens), static_cast<uint64_t>(variant),
                      uint64_t{1}};
  std::mt19937_64 random(seeds);
  return absl::StrCat(options.model, ":a",
                      std::uniform_int_distribution<int>(0, options.adapters - 1)(random));
}

// Draws ids. They do not depend on max_tokens, so that answers for different settings can be
// compared.
std::vector<int32_t> DrawIds(const PayloadOptions& options, int32_t tokens, int variant) {
  std::seed_seq seeds{options.seed, static_cast<uint64_t>(tokens), static_cast<uint64_t>(variant)};
  std::mt19937_64 random(seeds);
  std::uniform_int_distribution<int32_t> id(0, options.vocab - 1);
  std::vector<int32_t> ids(tokens);
  for (int32_t& each : ids) each = id(random);
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> PayloadPool::Assign(const std::vector<Arrival>& arrivals) {
  std::vector<uint32_t> assigned;
  assigned.reserve(arrivals.size());
  std::map<std::pair<int32_t, int32_t>, int> seen;
  for (const Arrival& arrival : arrivals) {
    const int variant = seen[{arrival.tokens, arrival.max_tokens}]++ % options_.variants;
    const auto [found, missing] = index_.try_emplace({arrival.tokens, arrival.max_tokens, variant},
                                                     static_cast<uint32_t>(payloads_.size()));
    if (missing) {
      payloads_.push_back(Make(arrival.tokens, arrival.max_tokens, variant));
      bytes_ += payloads_.back().bytes.size();
      if (bytes_ > kMaxPoolBytes) {
        return absl::ResourceExhaustedError(
            "the distinct requests take over 2 GiB; use fewer variants or shorter lengths");
      }
    }
    assigned.push_back(found->second);
  }
  return assigned;
}

Payload PayloadPool::Make(int32_t tokens, int32_t max_tokens, int variant) const {
  inference::ModelInferRequest request;
  request.set_model_name(DrawModel(options_, tokens, variant));
  request.set_model_version(options_.version);
  for (const auto& [name, value] : options_.parameters) SetParameter(name, value, &request);
  if (max_tokens >= 0) SetParameter("max_tokens", absl::StrCat(max_tokens), &request);
  auto* input = request.add_inputs();
  input->set_name(options_.input);
  input->set_datatype(options_.int64 ? "INT64" : "INT32");
  if (options_.batch_dimension) input->add_shape(1);
  input->add_shape(tokens);
  const std::vector<int32_t> ids = DrawIds(options_, tokens, variant);
  if (options_.typed) {
    FillTyped(ids, options_.int64, input->mutable_contents());
  } else {
    request.add_raw_input_contents(Raw(ids, options_.int64));
  }
  for (const std::string& output : options_.outputs) request.add_outputs()->set_name(output);
  // The serialisation order of maps may differ from run to run unless a deterministic order is
  // requested.
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return {grpc::Slice(bytes), HashBytes(bytes.data(), bytes.size()), tokens};
}

uint64_t HashBytes(const void* bytes, size_t size, uint64_t hash) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < size; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

}  // namespace sluice::load
