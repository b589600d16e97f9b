// Runs a fuzz target without libFuzzer, so that it runs in every build: first on the files of its
// corpus, then on mutated ones from a fixed seed. Unlike libFuzzer, it does not use coverage to
// choose inputs.
//
// usage: bounded_TARGET RUNS CORPUS...
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

constexpr unsigned kSeed = 20261121;

// The input number that the signal handler reports. The corpus comes first, in order of names.
volatile std::sig_atomic_t input_number = 0;

void TellInput(int) {
  std::fprintf(stderr, "failed on input %d of seed %u\n", static_cast<int>(input_number), kSeed);
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
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s RUNS CORPUS...\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, &TellInput);
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  const std::vector<std::string> corpus = ReadCorpus(argc - 2, argv + 2);
  if (corpus.empty()) {
    std::fprintf(stderr, "the corpus is empty\n");
    return 1;
  }
  for (const std::string& input : corpus) Run(input);
  Mutator mutator(&corpus);
  for (int runs = std::atoi(argv[1]); runs > 0; --runs) Run(mutator.Next());
  std::printf("%zu inputs of the corpus, %s mutated inputs; %s\n", corpus.size(), argv[1],
              sluice::fuzz::Costliest().c_str());
  return 0;
}
