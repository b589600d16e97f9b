// Runs a fuzz target without libFuzzer, so that it runs in every build: first on the files of its
// corpus, then on mutated ones from a fixed seed. Unlike libFuzzer, it does not use coverage to
// choose inputs. Fails if the code accepts too small a share of the mutated inputs, because a
// refused input tests little.
//
// usage: bounded_TARGET RUNS LEAST_ACCEPTED_PERCENT CORPUS...
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate_json.h"

extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

// GCC's UBSAN does not call the callback.
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }

namespace {

constexpr unsigned kSeed = 20261121;

// The input number that is reported if the program dies. The corpus comes first, in order of names.
volatile std::sig_atomic_t input_number = 0;

void TellInput() {
  dprintf(STDERR_FILENO, "failed on input %d of seed %u\n", static_cast<int>(input_number), kSeed);
}

void TellInputOfSignal(int number) {
  TellInput();
  std::signal(number, SIG_DFL);
  std::raise(number);  // ends the program when this handler returns
}

// Makes the program report the input if it dies. Sanitizers report all signals except SIGABRT.
void TellInputOnDeath() {
  static char stack[1 << 16];  // for the handler after an overflow of the stack
  const stack_t alternative = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof(stack)};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = &TellInputOfSignal;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGABRT, &action, nullptr);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(&TellInput);
    return;
  }
  for (const int number : {SIGSEGV, SIGFPE, SIGBUS, SIGILL}) sigaction(number, &action, nullptr);
}

std::vector<std::string> ReadCorpus(int folders, char** paths) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < folders; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(paths[i])) files.push_back(entry);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>* corpus) : corpus_(corpus) {}

  std::string Next() {
    std::string input = Any();
    if (Below(4) > 0) {
      std::optional<std::string> changed = sluice::fuzz::MutateJson(input, Any(), random_);
      if (changed.has_value()) return *std::move(changed);
    }
    for (size_t changes = 1 + Below(6); changes > 0; --changes) Change(&input);
    return input;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }
  const std::string& Any() { return (*corpus_)[Below(corpus_->size())]; }

  void Change(std::string* input) {
    constexpr const char* kNumbers[] = {
        "-1",    "0",   "2147483648", "4294967296", "9223372036854775807", "18446744073709551615",
        "1e999", "NaN", "0.5"};
    const size_t at = Below(input->size() + 1);
    const size_t count = std::min(Below(8) + 1, input->size() - at);
    switch (Below(7)) {
      case 0:
        if (at < input->size()) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
        return;
      case 1:
        if (at < input->size()) (*input)[at] = static_cast<char>(random_());
        return;
      case 2:
        input->erase(at, count);
        return;
      case 3:
        input->insert(at, input->substr(at, count));
        return;
      case 4:
        input->replace(at, count, kNumbers[Below(std::size(kNumbers))]);
        return;
      case 5:
        input->resize(at);
        return;
      default:
        Splice(at, input);
    }
  }

  // Replaces some bytes at `at` with a piece of another input, or inserts the piece there.
  void Splice(size_t at, std::string* input) {
    const std::string& other = Any();
    const size_t from = Below(other.size() + 1);
    input->replace(at, Below(2) * 16, other, from, Below(64));
  }

  const std::vector<std::string>* corpus_;
  std::mt19937_64 random_{kSeed};
};

void Run(const std::string& input) {
  // The array has exactly the input's size, so the address sanitizer detects a read past the end.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  input_number = input_number + 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s RUNS LEAST_ACCEPTED_PERCENT CORPUS...\n", argv[0]);
    return 2;
  }
  TellInputOnDeath();
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  const std::vector<std::string> corpus = ReadCorpus(argc - 3, argv + 3);
  if (corpus.empty()) {
    std::fprintf(stderr, "the corpus is empty\n");
    return 1;
  }
  for (const std::string& input : corpus) Run(input);
  const int64_t accepted_seeds = sluice::fuzz::Inputs().accepted;
  Mutator mutator(&corpus);
  const int runs = std::atoi(argv[1]), least_percent = std::atoi(argv[2]);
  for (int i = 0; i < runs; ++i) Run(mutator.Next());
  const int64_t accepted = sluice::fuzz::Inputs().accepted - accepted_seeds;
  std::printf("accepted %lld of %zu inputs of the corpus and %lld of %d mutated inputs; %s\n",
              static_cast<long long>(accepted_seeds), corpus.size(),
              static_cast<long long>(accepted), runs, sluice::fuzz::Costliest().c_str());
  if (100 * accepted >= int64_t{least_percent} * runs) return 0;
  std::fprintf(stderr, "fewer than %d %% of the mutated inputs were accepted\n", least_percent);
  return 1;
}
