#include "base/mapped_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/descriptor.h"

namespace sluice {
namespace {

constexpr size_t kSize = 1 << 16;

// A mapping of a file, which the test cuts.
class CutFile {
 public:
  CutFile() : file_(memfd_create("cut", 0)) {
    EXPECT_EQ(ftruncate(file_.get(), kSize), 0);
    data_ = static_cast<char*>(mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE, file_.get(), 0));
  }
  ~CutFile() { munmap(data_, kSize); }
  const char* data() const { return data_; }
  // Reads a byte that the file no longer has.
  void ReadBeyond() const {
    NameMappingsOnFault();
    if (ftruncate(file_.get(), 0) != 0) return;
    volatile char byte = data_[kSize - 1];
    (void)byte;
  }

 private:
  const Descriptor file_;
  char* data_ = nullptr;
};

using MappedFilesDeathTest = ::testing::Test;

TEST_F(MappedFilesDeathTest, AFaultNamesTheFileAndItsOwnerAndEndsTheProcess) {
  const CutFile other, cut;
  const MappingName other_name(other.data(), kSize, "other file");
  const MappingName name(cut.data(), kSize, "the file");
  EXPECT_EXIT(cut.ReadBeyond(), ::testing::KilledBySignal(SIGBUS), "SIGBUS.: the file\n");
  name.Set("model m version 3, file f");
  EXPECT_EXIT(cut.ReadBeyond(), ::testing::KilledBySignal(SIGBUS), "model m version 3, file f\n");
}

TEST_F(MappedFilesDeathTest, LongNamesAreCutAndPlacesAreUsedAgain) {
  const CutFile cut;
  for (int i = 0; i < 100; ++i) const MappingName gone(cut.data(), kSize, "gone");
  const MappingName name(cut.data(), kSize, std::string(2000, 'x'));
  EXPECT_EXIT(cut.ReadBeyond(), ::testing::KilledBySignal(SIGBUS), ": x{511}\n");
}

TEST_F(MappedFilesDeathTest, AFaultElsewhereEndsTheProcessAsBefore) {
  const CutFile cut;
  { const MappingName gone(cut.data(), kSize, "gone"); }
  EXPECT_EXIT(cut.ReadBeyond(), ::testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace sluice
