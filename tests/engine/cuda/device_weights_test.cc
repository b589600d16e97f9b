#include "engine/cuda/device_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/packed.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using kernels::DType;
using kernels::LoadAsFloat;
using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;

constexpr uint64_t kWeightsSeed = 20261123;
constexpr const char* kDTypes[] = {"F32", "F16", "BF16"};
int64_t RandomInt(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

constexpr size_t kPiece = 512;  // so that most tensors take several

// A checkpoint with one tensor of random bits, and a device to load it to.
template <typename T>
class DeviceWeightsTest : public ::testing::Test {
 protected:
  void Write(const std::string& dtype, std::vector<int64_t> shape) {
    int64_t bytes = dtype == "F32" ? 4 : 2;
    for (const int64_t size : shape) bytes *= size;
    std::string data(bytes, '\0');
    for (char& byte : data) byte = static_cast<char>(RandomInt(random_, -128, 127));
    part_ = {.name = "weight", .shape = shape};
    // A second tensor before it, so that the first one's bytes are not aligned.
    WriteTestFile(
        directory_.File("model.safetensors"),
        SafetensorsFile({{"before", "BF16", {3}, "123456"}, {"weight", dtype, shape, data}}));
    checkpoint_ = Checkpoint::OpenFile(directory_.File("model.safetensors")).value();
    tensor_ = checkpoint_.Find("weight", shape).value();
  }
  // Returns the tensor's value `i` as the host computes it.
  T Value(int64_t i) const { return Narrow<T>(LoadAsFloat(tensor_.data, tensor_.dtype, i)); }

  void Expect(absl::StatusOr<const T*> loaded, const std::vector<T>& expected) {
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_TRUE(weights_.Finish().ok());
    const size_t bytes = expected.size() * sizeof(T);
    const PinnedMemory values = device_->AllocatePinned(bytes).value();
    other_->CopyToHost(values.get(), *loaded, bytes);
    const absl::Status status = other_->Synchronize();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(values.get(), expected.data(), bytes), 0);
  }

  std::mt19937_64 random_{kWeightsSeed};
  const TemporaryDirectory directory_;
  Checkpoint checkpoint_;
  TensorPart part_;
  Tensor tensor_;
  const std::unique_ptr<simt::SimtDevice> device_ = simt::MakeSimtDevice({.seed = kWeightsSeed});
  const std::unique_ptr<DeviceStream> stream_ = device_->CreateStream().value();
  const std::unique_ptr<DeviceStream> other_ = device_->CreateStream().value();
  DeviceWeights weights_{*device_, *stream_, kPiece};
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(DeviceWeightsTest, Types);

TYPED_TEST(DeviceWeightsTest, LoadsPartsOfATensor) {
  for (const char* dtype : kDTypes) {
    for (int trial = 0; trial < 8; ++trial) {
      const int64_t size = RandomInt(this->random_, 1, 2000);
      const int64_t first = RandomInt(this->random_, 0, size - 1);
      const int64_t count = RandomInt(this->random_, 1, size - first);
      SCOPED_TRACE(::testing::Message() << count << " from " << first << " of " << size << " "
                                        << dtype << ", seed " << kWeightsSeed);
      this->Write(dtype, {size});
      this->part_.first = first;
      std::vector<TypeParam> expected;
      for (int64_t i = 0; i < count; ++i) expected.push_back(this->Value(first + i));
      this->Expect(this->weights_.template Load<TypeParam>(this->checkpoint_, this->part_, count),
                   expected);
    }
  }
}

// Rows of up to 400 values are longer than a piece.
TYPED_TEST(DeviceWeightsTest, LoadsDenseLayersAsInOut) {
  for (const char* dtype : kDTypes) {
    for (int trial = 0; trial < 8; ++trial) {
      const int64_t in = RandomInt(this->random_, 1, trial % 2 == 0 ? 20 : 400);
      const int64_t out = RandomInt(this->random_, 1, 100);
      SCOPED_TRACE(::testing::Message()
                   << in << " in, " << out << " out, " << dtype << ", seed " << kWeightsSeed);
      std::vector<TypeParam> expected(in * out);
      this->Write(dtype, {out, in});
      for (int64_t k = 0; k < in; ++k) {
        for (int64_t n = 0; n < out; ++n) expected[k * out + n] = this->Value(n * in + k);
      }
      this->Expect(this->weights_.template LoadDense<TypeParam>(this->checkpoint_, this->part_,
                                                                MatrixLayout::kOutIn, in, out),
                   expected);

      const int64_t all = out + RandomInt(this->random_, 0, 50);
      this->Write(dtype, {in, all});
      this->part_.first = RandomInt(this->random_, 0, all - out);
      for (int64_t k = 0; k < in; ++k) {
        for (int64_t n = 0; n < out; ++n) {
          expected[k * out + n] = this->Value(this->part_.first + k * all + n);
        }
      }
      this->Expect(this->weights_.template LoadDense<TypeParam>(this->checkpoint_, this->part_,
                                                                MatrixLayout::kInOut, in, out),
                   expected);
    }
  }
}

// The matrices are the second halves of a stack, whole matrices one after another, or tensors.
TYPED_TEST(DeviceWeightsTest, LoadsTheMatricesOfExpertsAsInOut) {
  for (const char* dtype : kDTypes) {
    for (int trial = 0; trial < 9; ++trial) {
      const int64_t in = RandomInt(this->random_, 1, trial < 3 ? 400 : 20);
      const int64_t out = RandomInt(this->random_, 1, 40), matrices = 3;
      const bool stacked = trial % 3 == 0, flat = trial % 3 == 1;
      SCOPED_TRACE(::testing::Message() << in << " in, " << out << " out, " << dtype << ", trial "
                                        << trial << ", seed " << kWeightsSeed);
      this->Write(dtype, stacked ? std::vector<int64_t>{matrices, 2 * out, in}
                         : flat  ? std::vector<int64_t>{matrices * in, out}
                                 : std::vector<int64_t>{out, in});
      LinearOp op = {.in = kNoBuffer,
                     .out = kNoBuffer,
                     .weight = this->part_,
                     .layout = flat ? MatrixLayout::kInOut : MatrixLayout::kOutIn,
                     .index = MatrixIndex::kExpert,
                     .matrices = matrices,
                     .bias = {},
                     .bias_each = false,
                     .accumulate = false};
      if (stacked) {
        op.weight.first = op.weight.run = out * in;
        op.weight.stride = 2 * out * in;
      } else if (!flat) {
        op.more_matrices = {"weight", "weight"};
      }
      std::vector<TypeParam> expected(matrices * in * out);
      for (int64_t m = 0; m < matrices; ++m) {
        for (int64_t k = 0; k < in; ++k) {
          for (int64_t n = 0; n < out; ++n) {
            const int64_t first = stacked ? (2 * m + 1) * out * in : flat ? m * out * in : 0;
            expected[(m * in + k) * out + n] =
                this->Value(first + (flat ? k * out + n : n * in + k));
          }
        }
      }
      this->Expect(this->weights_.template LoadMatrices<TypeParam>(this->checkpoint_, op, in, out),
                   expected);
    }
  }
}

TYPED_TEST(DeviceWeightsTest, LoadsRowsOfOddLengthsWithZerosAfterThem) {
  constexpr int64_t kIn = 30, kOut = 61, kPadded = 64;
  for (const char* dtype : kDTypes) {
    this->Write(dtype, {kOut, kIn});
    std::vector<TypeParam> expected(kIn * kPadded, Narrow<TypeParam>(0.0f));
    for (int64_t k = 0; k < kIn; ++k) {
      for (int64_t n = 0; n < kOut; ++n) expected[k * kPadded + n] = this->Value(n * kIn + k);
    }
    this->Expect(this->weights_.template LoadDense<TypeParam>(
                     this->checkpoint_, this->part_, MatrixLayout::kOutIn, kIn, kOut, kPadded),
                 expected);
  }
}

TYPED_TEST(DeviceWeightsTest, LoadsJoinedLayersAsColumnsOfOne) {
  constexpr int64_t kIn = 70, kOut = 24;
  for (const char* dtype : kDTypes) {
    this->Write(dtype, {kOut, kIn});
    std::vector<TypeParam> expected;
    for (int64_t k = 0; k < kIn; ++k) {
      for (int64_t n = 0; n < 2 * kOut; ++n) {
        expected.push_back(this->Value(n % kOut * kIn + k));
      }
    }
    const std::vector<DeviceWeights::Columns> columns(2, {&this->part_, kOut});
    this->Expect(this->weights_.template LoadJoined<TypeParam>(this->checkpoint_, columns, kIn),
                 expected);
    this->Write(dtype, {kOut});
    expected.clear();
    for (int64_t n = 0; n < 2 * kOut; ++n) expected.push_back(this->Value(n % kOut));
    this->Expect(this->weights_.template LoadJoinedBias<TypeParam>(this->checkpoint_, columns),
                 expected);
  }
}

TYPED_TEST(DeviceWeightsTest, PacksTheLastLoadedTensorAndReleasesIt) {
  constexpr int32_t kIn = 70, kOut = 24;
  this->Write("F32", {kOut, kIn});
  std::vector<TypeParam> expected(kernels::cuda::PackedElements<TypeParam>(1, kIn, kOut));
  for (int32_t k = 0; k < kIn; ++k) {
    const int32_t depth = kernels::cuda::kSliceDepth<TypeParam>;
    for (int32_t n = 0; n < kOut; ++n) {
      expected[k / depth * kernels::cuda::kSliceElements<TypeParam> +
               kernels::cuda::PlaceInSlice(TypeParam{}, k % depth, n)] = this->Value(n * kIn + k);
    }
  }
  const auto plain = this->weights_.template LoadDense<TypeParam>(this->checkpoint_, this->part_,
                                                                  MatrixLayout::kOutIn, kIn, kOut);
  ASSERT_TRUE(plain.ok()) << plain.status();
  this->Expect(this->weights_.Pack(*plain, kernels::cuda::WeightLayout::kPanels, 1, kIn, kOut),
               expected);
  const auto bytes = static_cast<int64_t>(expected.size() * sizeof(TypeParam));
  EXPECT_EQ(this->weights_.bytes(), bytes);
  EXPECT_EQ(this->device_->counts().device_bytes, bytes);
}

TEST(UploadRingTest, GrowsWithThePiecesAndKeepsNothingAfterFinish) {
  const auto device = simt::MakeSimtDevice({});
  const auto stream = device->CreateStream().value();
  const int64_t before = device->FreeMemory();
  UploadRing ring(*device, *stream, 1 << 16);
  for (const size_t bytes : {1, 1000, 10, 1 << 16, 2000}) {
    void* const piece = ring.NextPiece(bytes).value();
    std::memset(piece, static_cast<int>(bytes % 251), bytes);
    ring.Send(bytes);
    EXPECT_LE(before - device->FreeMemory(), 1 << 16);
  }
  EXPECT_EQ(before - device->FreeMemory(), 1 << 16);
  EXPECT_TRUE(ring.Finish().ok());
  EXPECT_EQ(device->FreeMemory(), before);
}

TEST(UploadRingTest, DestructorWaitsForTheSentPieces) {
  const auto device = simt::MakeSimtDevice({});
  const auto stream = device->CreateStream().value();
  const int64_t before = device->FreeMemory();
  {
    UploadRing ring(*device, *stream, 1 << 16);
    std::memset(ring.NextPiece(100).value(), 0, 100);
    ring.Send(100);
  }
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(device->FreeMemory(), before);
}

TEST(UploadRingTest, ALostDeviceIsAnErrorOfTheNextPiece) {
  const auto device = simt::MakeSimtDevice({});
  const auto stream = device->CreateStream().value();
  UploadRing ring(*device, *stream, 1 << 16);
  for (int i = 0; i < 2; ++i) {
    std::memset(ring.NextPiece(16).value(), 0, 16);
    ring.Send(16);
  }
  device->Lose("gone");
  EXPECT_EQ(ring.NextPiece(16).status(), absl::UnavailableError("gone"));
  EXPECT_EQ(ring.Finish(), absl::UnavailableError("gone"));
}

}  // namespace
}  // namespace sluice::testing
