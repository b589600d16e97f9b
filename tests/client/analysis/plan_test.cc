// The commands plan and einsum. The figures are tested in cascades and cascades/einsum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/device_description.h"
#include "client/exit_code.h"
#include "engine/step_description.h"
#include "kernels/cpu/profile.h"
#include "nlohmann/json.hpp"
#include "proto/admin.grpc.pb.h"
#include "tests/client/command_fixture.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::client {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the answer that the test sets.
class PlanService final : public admin::v1::Admin::Service {
 public:
  grpc::Status DescribeStep(grpc::ServerContext*, const admin::v1::DescribeStepRequest* request,
                            admin::v1::DescribeStepResponse* response) override {
    asked = *request;
    *response = answer;
    return grpc::Status::OK;
  }

  admin::v1::DescribeStepRequest asked;
  admin::v1::DescribeStepResponse answer;
};

class PlanCommandTest : public CommandFixture {
 protected:
  void SetUp() override {
    Serve({&service_});
    std::filesystem::create_directories(model_);
    const einsum::DeviceDescription device = {
        .name = "a test's device",
        .workers = 2,
        .flops_per_second = 1e11,
        .exponentials_per_second = 2e9,
        .launch_seconds = 1e-6,
        .levels = {{.name = "memory", .bytes = 1e12, .bytes_per_second = 2e10, .shared = true}}};
    std::ofstream(device_) << einsum::DeviceDescriptionJson(device);
    ModelConfig config = testing::TinyConfig(2);
    config.max_positions = 2048;
    testing::WriteModel(config, 3, kernels::DType::kF32, model_);
  }
  void TearDown() override {
    CommandFixture::TearDown();
    std::filesystem::remove_all(folder_);
  }

  PlanService service_;
  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/plan_test");
  const std::string device_ = folder_ + "/device.json";
  const std::string model_ = folder_ + "/model";
};

TEST_F(PlanCommandTest, ShowsOpsAndOrdersOfADirectory) {
  EXPECT_EQ(RunWith({"plan", model_, "--device", device_, "--context", "2000"}), kExitOk) << error_;
  EXPECT_THAT(
      out_,
      HasSubstr(
          "a test's device\nStep: 1 sequence of 2000 tokens; it computes the last 1 of each"));
  EXPECT_THAT(out_, HasSubstr("rms_norm "));
  EXPECT_THAT(out_, HasSubstr("two_pass "));
  EXPECT_THAT(out_, HasSubstr(" serves"));
  EXPECT_THAT(out_, HasSubstr(": auto takes it"));
  EXPECT_THAT(out_, Not(HasSubstr("Measured")));

  ASSERT_EQ(RunWith({"plan", model_, "--device", device_, "--variant", "split:2", "--json"}),
            kExitOk);
  const json plan = json::parse(out_);
  EXPECT_EQ(plan["model"], model_);
  EXPECT_EQ(plan["step"]["context"], 2048);
  EXPECT_EQ(plan["attention"][0]["chosen"], "split:2");
}

TEST_F(PlanCommandTest, NeedsNoWeightsUnlessItRunsTheModel) {
  std::filesystem::remove(model_ + "/model.safetensors");
  EXPECT_EQ(RunWith({"plan", model_, "--device", device_}), kExitOk) << error_;
  EXPECT_EQ(RunWith({"plan", model_, "--device", device_, "--profile"}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("--profile: "));
  EXPECT_THAT(error_, HasSubstr("has no weights"));
}

TEST_F(PlanCommandTest, ProfilesTheOpsOfADirectory) {
  ASSERT_EQ(RunWith({"plan", model_, "--device", device_, "--context", "9", "--profile"}), kExitOk)
      << error_;
  EXPECT_THAT(out_, HasSubstr("Measured: "));
  EXPECT_THAT(out_, HasSubstr("BOUND BY"));
  ASSERT_EQ(RunWith({"plan", model_, "--device", device_, "--context", "9", "--profile", "--json"}),
            kExitOk);
  const json profile = json::parse(out_);
  for (const json& op : profile["ops"]) {
    const double measured = op["measured_seconds"];
    EXPECT_LE(op["roofline"]["seconds"], measured * (1 + 1e-9)) << op["kind"];
  }
}

TEST_F(PlanCommandTest, ComputesTheReportOfAServedModelFromTheDaemonsData) {
  const auto model = LoadModel(model_, 1, model_).value();
  admin::v1::DescribeStepResponse& answer = service_.answer;
  answer.set_config_json(model->config_json);
  answer.set_kv_dtype("f32");
  answer.set_sequences(3);
  answer.set_tokens(2);
  answer.set_context(9);
  answer.set_attention_variant("one_pass");
  answer.set_attention_reason("The daemon's reason.");
  for (const double bytes : WeightBytes(*model)) answer.add_weight_bytes(bytes);
  for (size_t i = 0; i < model->graph.ops.size(); ++i) answer.add_op_seconds(0.25);

  ASSERT_EQ(
      RunWith({"plan", "--model", "mine", "--model-version", "4", "--sequences", "3", "--tokens",
               "2", "--context", "9", "--profile", "--device", device_, "--json"}),
      kExitOk)
      << error_;
  EXPECT_EQ(service_.asked.model_name(), "mine");
  EXPECT_EQ(service_.asked.model_version(), "4");
  EXPECT_EQ(service_.asked.sequences(), 3);
  EXPECT_EQ(service_.asked.tokens(), 2);
  EXPECT_EQ(service_.asked.context(), 9);
  EXPECT_TRUE(service_.asked.profile());
  json served = json::parse(out_);
  double seconds = 0;
  for (json& op : served["ops"]) {
    seconds += op["measured_seconds"].get<double>();
    op.erase("measured_seconds");
  }
  EXPECT_EQ(seconds, 0.25 * static_cast<double>(model->graph.ops.size()));
  EXPECT_EQ(served["model"], "mine");
  EXPECT_THAT(served["attention"][0]["reason"].get<std::string>(),
              HasSubstr("The daemon's reason."));

  // Everything else equals the report of the directory.
  ASSERT_EQ(RunWith({"plan", model_, "--sequences", "3", "--tokens", "2", "--context", "9",
                     "--variant", "one_pass", "--device", device_, "--json"}),
            kExitOk);
  EXPECT_EQ(served["ops"], json::parse(out_)["ops"]);
}

// Returns the label of the device in the report of a command.
std::string DeviceName(const std::string& out) { return json::parse(out)["device"]["name"]; }

TEST_F(PlanCommandTest, LabelsThisMachineWithTheProfileOfTheModel) {
  ASSERT_EQ(RunWith({"plan", model_, "--context", "9", "--json"}), kExitOk) << error_;
  EXPECT_THAT(DeviceName(out_), Not(HasSubstr("bf16"))) << "the weights are in f32";
  EXPECT_THAT(DeviceName(out_), EndsWith("-f32"));

  ModelConfig config = testing::TinyConfig(2);
  config.max_positions = 2048;
  testing::WriteModel(config, 3, kernels::DType::kBF16, model_);
  const std::string most(kernels::ProfileName(kernels::StoredPrecisionProfile()));
  ASSERT_EQ(RunWith({"plan", model_, "--context", "9", "--json"}), kExitOk) << error_;
  EXPECT_THAT(DeviceName(out_), EndsWith(most));

  json text = json::parse(std::ifstream(model_ + "/config.json"));
  text["sluice"]["quantization"] = "int8";
  std::ofstream(model_ + "/config.json") << text;
  ASSERT_EQ(RunWith({"plan", model_, "--context", "9", "--json"}), kExitOk) << error_;
  EXPECT_THAT(DeviceName(out_), EndsWith("-int8"));
}

TEST_F(PlanCommandTest, LabelsAServedModelWithTheProfileOfItsDaemon) {
  const auto model = LoadModel(model_, 1, model_).value();
  admin::v1::DescribeStepResponse& answer = service_.answer;
  answer.set_config_json(model->config_json);
  answer.set_kv_dtype("f32");
  answer.set_sequences(1);
  answer.set_tokens(1);
  answer.set_context(9);
  answer.set_attention_variant("one_pass");
  answer.set_profile("cpu-portable-f32-int4-g32");
  for (const double bytes : WeightBytes(*model)) answer.add_weight_bytes(bytes);
  ASSERT_EQ(RunWith({"plan", "--model", "mine", "--json"}), kExitOk) << error_;
  EXPECT_THAT(DeviceName(out_), EndsWith(" threads, cpu-portable-f32-int4-g32"));
}

TEST_F(PlanCommandTest, RefusesADescriptionThatContradictsItsModel) {
  const auto model = LoadModel(model_, 1, model_).value();
  admin::v1::DescribeStepResponse good;
  good.set_config_json(model->config_json);
  good.set_kv_dtype("f32");
  good.set_sequences(1);
  good.set_tokens(1);
  good.set_context(9);
  good.set_attention_variant("one_pass");
  for (const double bytes : WeightBytes(*model)) good.add_weight_bytes(bytes);
  const auto expect = [&](int code, const char* what, auto change) {
    service_.answer = good;
    change(&service_.answer);
    EXPECT_EQ(RunWith({"plan", "--model", "mine", "--device", device_}), code) << what << error_;
    if (code != kExitOk) {
      EXPECT_THAT(error_, HasSubstr("cannot be read")) << what;
    }
  };
  using Answer = admin::v1::DescribeStepResponse;
  expect(kExitOk, "unchanged", [](Answer*) {});
  expect(kExitFailed, "empty", [](Answer* answer) { answer->Clear(); });
  expect(kExitFailed, "no JSON", [](Answer* answer) { answer->set_config_json("{"); });
  expect(kExitFailed, "a dtype", [](Answer* answer) { answer->set_kv_dtype("f8"); });
  expect(kExitFailed, "auto", [](Answer* answer) { answer->set_attention_variant("auto"); });
  expect(kExitFailed, "a context", [](Answer* answer) { answer->set_context(1 << 20); });
  expect(kExitFailed, "too many ops", [](Answer* answer) { answer->add_weight_bytes(4); });
  expect(kExitFailed, "too few times", [](Answer* answer) { answer->add_op_seconds(1); });
  expect(kExitFailed, "not a number", [](Answer* answer) {
    answer->set_weight_bytes(0, std::numeric_limits<double>::quiet_NaN());
  });
}

TEST_F(PlanCommandTest, ErrorsNameTheFileOrTheFlag) {
  EXPECT_EQ(RunWith({"plan", folder_ + "/absent", "--device", device_}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("absent"));
  EXPECT_EQ(RunWith({"plan", model_, "--device", folder_ + "/absent"}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("absent"));
  EXPECT_EQ(RunWith({"plan", model_, "--device", device_, "--context", "2049"}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("context is 2049, must be in [1, 2048]"));
}

TEST_F(PlanCommandTest, AcceptsANameThatIsNotUtf8) {
  const std::string odd = folder_ + "/\xff";
  std::filesystem::rename(model_, odd);
  EXPECT_EQ(RunWith({"plan", odd, "--device", device_, "--json"}), kExitOk);
  EXPECT_TRUE(json::accept(out_)) << out_;
}

TEST_F(PlanCommandTest, AnalysesAnEinsumString) {
  ASSERT_EQ(
      RunWith({"einsum", "bld,lde->ble", "--sizes", "b=8,l=256,d=512,e=512", "--device", device_}),
      kExitOk)
      << error_;
  EXPECT_THAT(out_, HasSubstr("l batch"));
  EXPECT_THAT(out_, HasSubstr("d contraction"));
  ASSERT_EQ(RunWith({"einsum", "bld,lde->ble", "--device", device_, "--json"}), kExitOk);
  EXPECT_EQ(json::parse(out_)["einsums"][0]["roles"]["l"], "batch");
  EXPECT_EQ(RunWith({"einsum", "bld,lde->", "--sizes", "b=0", "--device", device_}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("--sizes: 'b=0' is not a name"));
}

TEST_F(PlanCommandTest, RefusesUnknownAndMissingSizesByName) {
  const auto refuse = [&](std::vector<const char*> source, const char* sizes, const char* error) {
    std::vector<std::string> words = {"einsum"};
    words.insert(words.end(), source.begin(), source.end());
    words.insert(words.end(), {"--sizes", sizes, "--device", device_});
    EXPECT_EQ(RunWith(words), kExitUsage);
    EXPECT_THAT(error_, HasSubstr(error));
  };
  refuse({"ab,bc->ac"}, "a=4,b=8,c=2,q=3", "--sizes: the cascade has no size 'q'; it has a, b, c");
  refuse({"ab,bc->ac"}, "a=4,b=8",
         "--sizes: 'c' has no size. Give the sizes of a, b, c, or leave the flag out for 64 each.");
  refuse({"--paper", "attention_three_pass"}, "token=4",
         "--sizes: the cascade has no size 'token'; it has context, head_dim, tokens");
  refuse({"rank k = 4 Z[k] = 1"}, "k=4", "--sizes: the cascade has no size 'k'; it has none");
  ASSERT_EQ(RunWith({"einsum", "ab,bc->ac", "--device", device_}), kExitOk) << error_;
  EXPECT_THAT(out_, HasSubstr("Sizes: a 64, b 64, c 64."));
}

TEST_F(PlanCommandTest, ReadsThePapersNotation) {
  ASSERT_EQ(RunWith({"einsum", "Z_{m,n} = A_{k,m} · B_{k,n} :: ∧_k ×(∩) ∨_k +(∪)", "--sizes",
                     "k=2,m=3,n=5", "--device", device_, "--json"}),
            kExitOk)
      << error_;
  const json found = json::parse(out_);
  EXPECT_EQ(found["einsums"][0]["mapping"], "GEMM m x k x n");
  EXPECT_EQ(found["einsums"][0]["points"], 30);
  EXPECT_EQ(found["sizes"], json({{"k", 2}, {"m", 3}, {"n", 5}}));
  EXPECT_EQ(RunWith({"einsum", "Z_k = A_k ⊕ B_k", "--device", device_}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("line 1, column 11: "));
  EXPECT_THAT(error_, HasSubstr("found '⊕'"));
}

TEST_F(PlanCommandTest, CarriesAConditionToLaterEinsums) {
  ASSERT_EQ(RunWith({"einsum", "S_{i,k : k ≤ i} = A_{i,k} Z_p = S_{p,m}", "--sizes",
                     "i=5,k=5,m=5,p=5", "--device", device_, "--json"}),
            kExitOk)
      << error_;
  const json found = json::parse(out_);
  EXPECT_THAT(found["cascade"].get<std::string>(), HasSubstr("reduce m +(or) where m <= p"));
  EXPECT_EQ(found["einsums"][0]["points"], 15);
  EXPECT_EQ(found["einsums"][1]["points"], 15);
}

TEST_F(PlanCommandTest, RewritesAnOwnCascade) {
  const std::string text =
      "QK_{m,p} = Q_{e,p} × K_{e,m}\nGM_p = QK_{m,p} :: ⋁_m max(∪)\n"
      "SN_{m,p} = e^{QK_{m,p} − GM_p}\nSD_p = SN_{m,p}\nA_{m,p} = SN_{m,p} / SD_p\n"
      "AV_{f,p} = A_{m,p} × V_{f,m}\n";
  ASSERT_EQ(RunWith({"einsum", "--derive", "--file", "-", "--sizes", "m=4096,p=1,e=64,f=64",
                     "--device", device_, "--json"},
                    text),
            kExitOk)
      << error_;
  const json found = json::parse(out_);
  EXPECT_EQ(found["given"]["analysis"]["passes"], 3);
  EXPECT_LT(found["cheapest"]["analysis"]["passes"], 3);
  EXPECT_LT(found["cheapest"]["estimated_seconds"], found["given"]["estimated_seconds"]);
  EXPECT_GT(found["compared"], 1);
  ASSERT_EQ(RunWith({"einsum", "--derive", "--file", "-", "--sizes", "m=4096,p=1,e=64,f=64",
                     "--device", device_},
                    text),
            kExitOk);
  EXPECT_THAT(out_, HasSubstr("As given: 3 passes over m, "));
  EXPECT_THAT(out_, HasSubstr("The cheapest of "));
  EXPECT_EQ(RunWith({"einsum", "--derive", "--paper", "attention_one_pass", "--device", device_}),
            kExitUsage);
  EXPECT_THAT(error_, HasSubstr("is computed by an iteration over 'c'"));
  ASSERT_EQ(RunWith({"einsum", "--derive", "Z_k = A_k", "--device", device_}), kExitOk) << error_;
  EXPECT_THAT(out_, HasSubstr("It is the cheapest of "));
}

TEST_F(PlanCommandTest, ReadsACascadeFromAFileOrStandardInput) {
  ASSERT_EQ(RunWith({"einsum", "--paper", "attention_three_pass", "--device", device_, "--json"}),
            kExitOk);
  const std::string text = json::parse(out_)["cascade"];
  EXPECT_EQ(json::parse(out_)["analysis"]["passes"], 3);
  ASSERT_EQ(RunWith({"einsum", "--file", "-", "--device", device_, "--json"}, text), kExitOk);
  EXPECT_EQ(json::parse(out_)["cascade"], text);
  EXPECT_EQ(RunWith({"einsum", "--file", "-", "--device", device_}, std::string(1 << 20, ' ')),
            kExitUsage);
  EXPECT_THAT(error_, HasSubstr("bytes"));
  EXPECT_EQ(RunWith({"einsum", "--paper", "none", "--device", device_}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr("'none'"));
}

TEST_F(PlanCommandTest, DerivesOnePassFromThree) {
  ASSERT_EQ(RunWith({"einsum", "--derive", "--json"}), kExitOk);
  const json steps = json::parse(out_);
  EXPECT_EQ(steps.front()["passes"], 3);
  EXPECT_EQ(steps.back()["passes"], 1);
  ASSERT_EQ(RunWith({"einsum", "--derive"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("3 passes over the keys"));
  EXPECT_THAT(out_, HasSubstr("1 pass over the keys"));
  EXPECT_EQ(out_.find("rank p "), out_.rfind("rank p ")) << "ranks are declared once";
}

struct BadPlanRow {
  std::vector<const char*> words;
  const char* error;
};

TEST(PlanArguments, AreRefusedByName) {
  const BadPlanRow kRows[] = {
      {{"plan"}, "plan needs exactly one of"},
      {{"plan", "folder", "--model", "m"}, "plan needs exactly one of"},
      {{"plan", "--model", "m", "--variant", "one_pass"}, "--variant"},
      {{"plan", "--model", "m", "--threads", "2"}, "--threads"},
      {{"plan", "--probe", "--profile"}, "--profile"},
      {{"plan", "folder", "--context", "0"}, "--context"},
      {{"plan", "folder", "--sequences", "65537"}, "--sequences"},
      {{"plan", "folder", "--variant", "split:1"}, "--variant"},
      {{"einsum"}, "einsum needs exactly one of"},
      {{"einsum", "ab->a", "--file", "f"}, "einsum needs exactly one of"},
      {{"einsum", "--paper", "p", "--file", "f", "--derive"}, "einsum needs exactly one of"},
  };
  for (const BadPlanRow& row : kRows) {
    std::vector<const char*> argv = {"sluice"};
    argv.insert(argv.end(), row.words.begin(), row.words.end());
    const auto arguments = ParseArguments(static_cast<int>(argv.size()), argv.data(),
                                          [](const char*) -> const char* { return nullptr; });
    ASSERT_FALSE(arguments.ok()) << row.error;
    EXPECT_THAT(std::string(arguments.status().message()), HasSubstr(row.error));
  }
}

}  // namespace
}  // namespace sluice::client
