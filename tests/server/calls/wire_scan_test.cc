#include "server/calls/wire_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/reason.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/health.pb.h"
#include "proto/inference.pb.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using google::protobuf::Message;
using inference::ModelInferRequest;
using ::testing::HasSubstr;

absl::StatusOr<WireCost> Scan(const std::string& bytes, const WireLimits& limits = {},
                              const Message& type = ModelInferRequest()) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return ScanWire(&stream, *type.GetDescriptor(), limits);
}

void ExpectNoneIsLarger(const google::protobuf::Descriptor& type) {
  if (type.options().map_entry()) return;  // a pair of values without its own type
  const Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  EXPECT_LE(prototype->SpaceUsedLong(), kMessageBytes) << type.full_name();
  for (int i = 0; i < type.nested_type_count(); ++i) ExpectNoneIsLarger(*type.nested_type(i));
}

TEST(WireScanTest, NoTypeIsLargerThanTheScanAssumes) {
  for (const google::protobuf::FileDescriptor* file :
       {ModelInferRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) ExpectNoneIsLarger(*file->message_type(i));
  }
}

// Draws a message with every kind of field, some of them many times.
ModelInferRequest DrawMessage(std::mt19937* random) {
  const auto below = [random](int limit) { return static_cast<int>((*random)() % limit); };
  ModelInferRequest message;
  message.set_id(std::string(below(40), 'i'));
  for (int i = below(20); i > 0; --i) {
    auto* input = message.add_inputs();
    input->set_name(std::string(below(30), 'n'));
    for (int k = below(5); k > 0; --k) input->add_shape(below(1 << 20));
    auto* contents = input->mutable_contents();
    for (int k = below(200); k > 0; --k) contents->add_int64_contents(below(1000));
    for (int k = below(200); k > 0; --k) contents->add_fp32_contents(1);
    for (int k = below(200); k > 0; --k) contents->add_bool_contents(true);
    for (int k = below(20); k > 0; --k) contents->add_bytes_contents(std::string(below(40), 'b'));
    (*input->mutable_parameters())[std::to_string(below(30))].set_bool_param(true);
  }
  for (int i = below(10); i > 0; --i) message.add_outputs()->set_name("o");
  for (int i = below(10); i > 0; --i) message.add_raw_input_contents(std::string(below(99), 'r'));
  for (int i = below(40); i > 0; --i) {
    (*message.mutable_parameters())[std::to_string(i)].set_string_param(
        std::string(below(50), 's'));
  }
  return message;
}

TEST(WireScanTest, AMessageTakesAtMostTheScannedCost) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const std::string bytes = DrawMessage(&random).SerializeAsString();
    const auto cost = Scan(bytes);
    ASSERT_TRUE(cost.ok()) << cost.status();
    ModelInferRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    const auto taken = static_cast<int64_t>(parsed.SpaceUsedLong());
    ASSERT_LE(taken, cost->bytes);
    ASSERT_LE(cost->bytes, 8 * taken) << "the bound is tight enough to be useful";
    const WireLimits exact{.parts = cost->parts, .bytes = cost->bytes};
    ASSERT_TRUE(Scan(bytes, exact).ok()) << "exactly at both limits";
    ASSERT_FALSE(Scan(bytes, {.parts = cost->parts - 1, .bytes = cost->bytes}).ok());
    ASSERT_FALSE(Scan(bytes, {.parts = cost->parts, .bytes = cost->bytes - 1}).ok());
    ASSERT_FALSE(Scan(bytes.substr(0, bytes.size() - 1)).ok()) << "the last byte is missing";
  }
}

struct FloodRow {
  const char* name;
  std::string unit;  // repeated up to a megabyte
  const char* error;
};
class FloodTable : public TableTest<FloodRow> {};

TEST_P(FloodTable, IsRefusedBeforeItIsParsed) {
  testing::TestDaemon daemon;
  std::string bytes;
  while (bytes.size() < (1 << 20)) bytes += row().unit;
  grpc::ClientContext context;
  const grpc::Status status = testing::RawCall(
      daemon.Channel(), "/inference.GRPCInferenceService/ModelInfer", bytes, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr(row().error));
  EXPECT_EQ(daemon.Metric("sluice_rejected_total", "reason=\"request\""), 1);
}

const FloodRow kFloodRows[] = {
    {.name = "OfEmptyInputs", .unit = std::string("\x2a\x00", 2), .error = "more than 2048 parts"},
    {.name = "OfEmptyOutputs", .unit = std::string("\x32\x00", 2), .error = "more than 2048 parts"},
    {.name = "OfEmptyParameters",
     .unit = std::string("\x22\x00", 2),
     .error = "more than 2048 parts"},
    {.name = "OfEmptyContents",
     .unit = std::string("\x3a\x00", 2),
     .error = "more than 2048 parts"},
    {.name = "OfUnknownNumbers",
     .unit = std::string("\x78\x01", 2),
     .error = "more than 2048 parts"},
    {.name = "OfEmptyIds", .unit = std::string("\x1a\x00", 2), .error = "more than 2048 parts"},
};
SLUICE_TABLE(FloodTable, kFloodRows);

TEST(WireScanTest, NumbersThatGrowInMemoryAreBounded) {
  ModelInferRequest message;
  auto* contents = message.add_inputs()->mutable_contents();
  for (int i = 0; i < 100'000; ++i) contents->add_int64_contents(1);
  const std::string bytes = message.SerializeAsString();
  EXPECT_LT(bytes.size(), 101'000u);
  const absl::Status status = Scan(bytes).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 1048576 bytes in memory"));
  EXPECT_EQ(ReasonOf(status), Reason::kRequest);
}

TEST(WireScanTest, GroupsAreMalformed) {
  EXPECT_EQ(ReasonOf(Scan("\x7b\x7c").status()), Reason::kMalformed);
}

}  // namespace
}  // namespace sluice
