#include "server/net/grpc_1_51/reflection_choice.h"

#include <vector>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

class Reflection final : public grpc::ServerBuilderOption {
 public:
  explicit Reflection(bool wanted) : wanted_(wanted) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
    if (!wanted_) return;
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }

 private:
  const bool wanted_;
};

}  // namespace

std::unique_ptr<grpc::ServerBuilderOption> ChooseReflection(bool wanted) {
  return std::make_unique<Reflection>(wanted);
}

}  // namespace sluice
