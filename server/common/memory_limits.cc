#include "server/common/memory_limits.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

// The memory of a call that gRPC has not released: 6 to 7 KiB for gRPC's and the daemon's state
// were measured, and metadata.
constexpr int64_t kBytesPerCall = 8 << 10;
constexpr int64_t kCallsShare = 16;
// Waiting calls, idle streams, requests in progress and operators each have about a quarter of the
// calls, so that one kind of them leaves room for the others.
constexpr int64_t kKindsOfCalls = 4;
constexpr int64_t kMinLiveCalls = 512;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kQueuesShare = 16;  // the queues of all configured models
constexpr int64_t kMostQueueBytes = int64_t{1} << 30;
// Freed memory that the heaps keep, and the memory of connections, headers and threads.
constexpr int64_t kReserveShare = 8;
constexpr int64_t kMostReserve = 512 * kMiB;
constexpr int64_t kParsedShare = 8;
// A message takes about its bytes again as Protobuf, and once more as a request.
constexpr int64_t kParsedFactor = 3;

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

int64_t MachineMemory() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

}  // namespace

int64_t MemoryLimits::sum() const {
  int64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += line.bytes;
  return bytes;
}

int64_t MemoryLimits::Of(std::string_view use) const {
  const auto found =
      std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.use == use; });
  return found == lines.end() ? 0 : found->bytes;
}

std::string MemoryLimits::Text() const {
  std::string text =
      absl::StrCat(Mebibytes(sum()), " of ", Mebibytes(limit), " (server.memory.limit_bytes)");
  const char* separator = ": ";
  for (const MemoryLine& line : lines) {
    absl::StrAppend(&text, separator, line.use, " ", Mebibytes(line.bytes), " (", line.option, ")");
    separator = ", ";
  }
  return text;
}

absl::Status MemoryLimits::Check() const {
  if (sum() <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the configuration needs more memory than the limit; lower one of the options "
                   "listed, or raise the limit: ",
                   Text()));
}

int64_t ProcessMemoryLimit(const MemoryOptions& options, FileReader read) {
  if (options.limit_bytes > 0) return options.limit_bytes;
  const int64_t machine = MachineMemory();
  return std::min(machine, CgroupMemory(read).value_or(machine));
}

std::string MemoryLimitWarning(const MemoryOptions& options, FileReader read) {
  const int64_t available = ProcessMemoryLimit(MemoryOptions(), read);
  if (options.limit_bytes <= available) return "";
  return absl::StrCat("server.memory.limit_bytes is ", Mebibytes(options.limit_bytes), ", but the ",
                      available < MachineMemory() ? "cgroup" : "machine", " has ",
                      Mebibytes(available),
                      ". The system may end the process before it reaches the limit. Lower the "
                      "option, or remove it to use all of this memory");
}

ServerOptions WithMemoryShares(ServerOptions options) {
  options.memory.limit_bytes = ProcessMemoryLimit(options.memory);
  const int64_t limit = options.memory.limit_bytes;
  if (options.grpc.memory_quota_bytes == 0) {
    options.grpc.memory_quota_bytes = limit / 4;
  }
  if (options.grpc.max_message_bytes == 0) {
    options.grpc.max_message_bytes =
        std::min(64 * kMiB, CountedQuota(options.grpc.memory_quota_bytes));
  }
  if (options.grpc.max_unread_bytes == 0) options.grpc.max_unread_bytes = limit / 8;
  if (options.grpc.max_calls == 0) {
    options.grpc.max_calls =
        std::max<int64_t>(limit / kCallsShare / kBytesPerCall / kKindsOfCalls, 1);
  }
  return options;
}

absl::Status CheckMessageSize(const GrpcOptions& options) {
  const int64_t most = CountedQuota(options.memory_quota_bytes);
  constexpr int64_t kLeast = 1024;  // bytes
  if (options.max_message_bytes < kLeast) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server.grpc.max_message_bytes is ", options.max_message_bytes,
        " with a server.grpc.memory_quota_bytes of ", options.memory_quota_bytes,
        ", must be at least ", kLeast, ". Raise it, and memory_quota_bytes to at least ",
        2 * kLeast, ", or set them to 0"));
  }
  if (options.max_message_bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "server.grpc.max_message_bytes is ", options.max_message_bytes, ", but only ", most,
      " bytes are for messages: 80 % of server.grpc.memory_quota_bytes, which by default is a "
      "quarter of server.memory.limit_bytes. Lower server.grpc.max_message_bytes to this number, "
      "or raise one of the others"));
}

EngineOptions WithMemoryShares(EngineOptions options, int64_t limit, int64_t models) {
  if (options.queue.max_bytes == 0) {
    options.queue.max_bytes =
        std::min(limit / kQueuesShare / std::max<int64_t>(models, 1), kMostQueueBytes);
  }
  return options;
}

int PreparationThreads() {
  return std::max(2, static_cast<int>(std::thread::hardware_concurrency()) / 2);
}

int64_t ParsedBytes(const ServerOptions& options) {
  return std::min(PreparationThreads() * options.grpc.max_message_bytes * kParsedFactor,
                  options.memory.limit_bytes / kParsedShare);
}

int64_t MaxLiveCalls(const ServerOptions& options) {
  return std::max(kKindsOfCalls * options.grpc.max_calls, kMinLiveCalls);
}

MemoryLimits ComputeMemoryLimits(const ServerOptions& options, int64_t queue_bytes, int64_t models,
                                 int64_t process_bytes) {
  const int64_t limit = options.memory.limit_bytes;
  return {.limit = limit,
          .lines = {
              {"process", process_bytes, "cpu.threads"},
              {"heaps", std::min(limit / kReserveShare, kMostReserve), "server.memory.limit_bytes"},
              {"calls", MaxLiveCalls(options) * kBytesPerCall, "server.grpc.max_calls"},
              {"messages", options.grpc.memory_quota_bytes, "server.grpc.memory_quota_bytes"},
              {"parsed_requests", ParsedBytes(options), "server.grpc.max_message_bytes"},
              {"unread_answers", options.grpc.max_unread_bytes, "server.grpc.max_unread_bytes"},
              {"queue", queue_bytes * models, "engine.queue.max_bytes"},
          }};
}

absl::Status CheckWeights(const MemoryLimits& limits, int64_t weight_bytes) {
  const int64_t free_bytes = std::max<int64_t>(limits.limit - limits.sum(), 0);
  if (weight_bytes <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the weights of the models take ", Mebibytes(weight_bytes), ", but only ",
      Mebibytes(free_bytes), " are free for models: ", Mebibytes(weight_bytes - free_bytes),
      " are missing, and room for activations and KV pages. Serve fewer models, raise "
      "server.memory.limit_bytes, or lower one of the options listed here. The limits without "
      "models: ",
      limits.Text()));
}

void AddModels(std::span<const ModelStats> models, bool on_cpu, MemoryLimits* limits) {
  int64_t weights = 0, adapters = 0, plans = 0, activations = 0, kv = 0, pinned = 0;
  for (const ModelStats& stats : models) {
    weights += stats.copied_bytes;
    pinned += stats.slot_memory.pinned;
    if (!on_cpu) continue;
    weights += stats.weight_bytes;
    adapters += stats.adapters.limit_bytes;
    plans += stats.plan_memory_bytes;
    activations += stats.slot_memory.activation_room;
    kv += stats.slot_memory.kv;
  }
  limits->lines.push_back({"weights", weights, "models, server.memory.copy_weights"});
  limits->lines.push_back({"adapters", adapters, "models, adapter_memory_bytes"});
  limits->lines.push_back({"activations", activations, "engine.batch.max_batch_tokens"});
  limits->lines.push_back({"kv", kv, "engine.kv.memory_bytes"});
  limits->lines.push_back({"plans", plans, "engine.ladder.memory_limit_bytes"});
  limits->lines.push_back({"pinned", pinned, "engine.batch.max_batch_tokens"});
}

}  // namespace sluice
