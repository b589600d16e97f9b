// A fixture that runs commands against a server with services of the test.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/analysis/commands.h"

namespace sluice::client {

// A buffer that reports the text written so far at each flush.
class FlushedBuffer : public std::stringbuf {
 public:
  explicit FlushedBuffer(const std::function<void(const std::string&)>& on_flush)
      : on_flush_(on_flush) {}

 protected:
  int sync() override {
    if (on_flush_) on_flush_(str());
    return 0;
  }

 private:
  const std::function<void(const std::string&)>& on_flush_;
};

class CommandFixture : public ::testing::Test {
 protected:
  // The services live until TearDown.
  void Serve(std::initializer_list<grpc::Service*> services) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    for (grpc::Service* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override { server_.reset(); }

  // Runs a command and returns its exit code; its output is in out_ and error_.
  int RunWith(std::vector<std::string> words, const std::string& input = "") {
    words.insert(words.begin(), {"sluice", "--server", address_, "--admin", address_});
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    const auto arguments = ParseArguments(static_cast<int>(argv.size()), argv.data(),
                                          [](const char*) -> const char* { return nullptr; });
    EXPECT_TRUE(arguments.ok()) << arguments.status();
    if (!arguments.ok()) return -1;
    std::istringstream in(input);
    std::ostringstream error;
    FlushedBuffer buffer(on_flush_);
    std::ostream out(&buffer);
    console_.in = &in;
    console_.out = &out;
    console_.error = &error;
    const int code = client::Run(*arguments, console_, client::Analyse);
    out_ = buffer.str();
    error_ = error.str();
    return code;
  }

  Console console_{};  // how it shows and waits; RunWith sets the streams
  std::function<void(const std::string& out)> on_flush_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_, out_, error_;
};

}  // namespace sluice::client
