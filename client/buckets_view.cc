#include "client/buckets_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text_wrap.h"
#include "client/table.h"
#include "client/trials.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using Buckets = google::protobuf::RepeatedPtrField<v1::Bucket>;
using Sizes = google::protobuf::RepeatedPtrField<v1::SizeCount>;

constexpr int kBarWidth = 10;
constexpr size_t kIndent = 12;  // of the text after a line's label

std::string PercentWithBar(double share) {
  return absl::StrFormat("%s %5.1f%%", Bar(share, kBarWidth), 100 * share);
}

std::string StateOf(const v1::BucketUse& use) {
  if (!use.in_ladder()) return "withdrawn";
  return use.ready() ? "ready" : "preparing";
}

// Returns the columns of a bucket; the counts are over the last hour.
std::vector<std::string> Row(const v1::BucketUse& use, int64_t all_batches) {
  const v1::BatchCounts& hour = use.last_hour();
  const auto batches = static_cast<double>(hour.batches());
  const bool used = hour.batches() > 0;
  const auto if_used = [used](std::string text) { return used ? std::move(text) : "-"; };
  return {BucketName(use.bucket()),
          StateOf(use),
          absl::StrCat(hour.batches()),
          Percent(all_batches == 0 ? 0 : batches / static_cast<double>(all_batches)),
          if_used(Percent(hour.bucket_fill())),
          if_used(Percent(hour.executed_efficiency())),
          if_used(Percent(hour.hit_rate())),
          if_used(absl::StrFormat("%.1f", static_cast<double>(hour.rows()) / batches)),
          use.cost_seconds() > 0 ? absl::StrFormat("%.3f", 1000 * use.cost_seconds()) : "-",
          absl::StrFormat("%.2f", Mebibytes(use.memory_bytes())),
          AgeText(use.last_used_age_seconds())};
}

// Returns the smallest size such that sizes up to it have at least `share` of the weight. Sizes
// ascend.
int64_t Quantile(const Sizes& sizes, double share) {
  double total = 0;
  for (const v1::SizeCount& size : sizes) total += size.weight();
  double sum = 0;
  for (const v1::SizeCount& size : sizes) {
    sum += size.weight();
    if (sum >= share * total) return size.tokens();
  }
  return sizes.empty() ? 0 : sizes.rbegin()->tokens();
}

std::string QuantilesText(const Sizes& sizes) {
  if (sizes.empty()) return "none yet";
  return absl::StrFormat("p50 %d, p90 %d, p99 %d, largest %d", Quantile(sizes, 0.5),
                         Quantile(sizes, 0.9), Quantile(sizes, 0.99), sizes.rbegin()->tokens());
}

// Returns a length of time such as "60 min" or "5 s".
std::string LengthText(double seconds) {
  return seconds < 120 ? absl::StrFormat("%.0f s", seconds)
                       : absl::StrFormat("%.0f min", seconds / 60);
}

std::string CostText(const v1::CostLaw& law) {
  std::vector<std::string> terms;
  const auto add = [&](double seconds, const char* unit) {
    if (seconds > 0) terms.push_back(absl::StrFormat("%.3g us%s", 1e6 * seconds, unit));
  };
  add(law.base(), "");
  add(law.per_bucket_token(), "/bucket token");
  add(law.per_computed_token(), "/computed token");
  add(law.per_context_token(), "/context token");
  add(law.per_distinct_position(), "/distinct position");
  add(law.per_sampled_row(), "/sampled row");
  add(law.per_distinct_adapter(), "/adapter");
  return terms.empty() ? "not measured yet" : absl::StrJoin(terms, " + ");
}

std::string TotalsText(const v1::ModelBuckets& model, const StrategyTrials* trials) {
  const v1::BatchCounts& hour = model.last_hour();
  const bool used = hour.batches() > 0;
  std::string text =
      absl::StrFormat("batches     %d in the last %s, plan cache hit rate %s; %d since the start\n",
                      hour.batches(), LengthText(model.last_hour_seconds()),
                      used ? Percent(hour.hit_rate()) : "-", model.batches());
  absl::StrAppendFormat(&text, "bucket fill %s, executed efficiency %s\n",
                        PercentWithBar(hour.bucket_fill()), Percent(hour.executed_efficiency()));
  absl::StrAppendFormat(&text, "device      busy %s, useful tokens %s of its %.0f tokens/s\n",
                        Percent(model.busy_share()), Percent(model.useful_share()),
                        model.device_tokens_per_second());
  absl::StrAppend(&text, WasteText(model, trials));
  std::string memory =
      absl::StrFormat("plans %.2f MiB, activations %.2f MiB", Mebibytes(model.plan_memory_bytes()),
                      Mebibytes(model.activation_memory_bytes()));
  if (model.memory_limit_bytes() > 0) {
    absl::StrAppendFormat(&memory, " (both at most %.2f MiB)",
                          Mebibytes(model.memory_limit_bytes()));
  }
  const std::pair<const char*, int64_t> uses[] = {{"weights", model.weight_memory_bytes()},
                                                  {"KV pages", model.kv_memory_bytes()},
                                                  {"requests", model.queued_memory_bytes()},
                                                  {"mapped files", model.mapped_memory_bytes()},
                                                  {"copied files", model.copied_memory_bytes()},
                                                  {"pinned", model.pinned_memory_bytes()},
                                                  {"head graphs", model.head_graph_memory_bytes()}};
  for (const auto& [use, bytes] : uses) {
    if (bytes > 0) absl::StrAppendFormat(&memory, ", %s %.2f MiB", use, Mebibytes(bytes));
  }
  absl::StrAppendFormat(&memory, "; activations %s above exact sizes",
                        Percent(model.memory_overhead()));
  absl::StrAppend(&text, Labelled("memory", kIndent, memory));
  absl::StrAppendFormat(&text, "arrivals    %.1f sequences/s, %.0f tokens/s\n",
                        model.sequences_per_second(), model.tokens_per_second());
  absl::StrAppendFormat(&text, "lengths     %s; entropy %.2f bits\n",
                        QuantilesText(model.lengths()), model.length_entropy_bits());
  absl::StrAppendFormat(&text, "batch size  %s; entropy %.2f bits\n",
                        QuantilesText(model.batch_totals()), model.shape_entropy_bits());
  const v1::LadderChanges& changes = model.ladder_changes();
  absl::StrAppendFormat(
      &text, "ladder      %d reviews; %d added, %d removed (%d for memory), %d merged, %d split\n",
      changes.reviews(), changes.added(), changes.removed(), changes.evicted(), changes.merged(),
      changes.split());
  return absl::StrCat(text, Labelled("step cost", kIndent, CostText(model.cost_law())));
}

std::string Names(const Buckets& buckets) {
  return absl::StrJoin(buckets, " ", [](std::string* out, const v1::Bucket& bucket) {
    out->append(BucketName(bucket));
  });
}

}  // namespace

std::string BucketName(const v1::Bucket& bucket) {
  return bucket.positions() > 0 ? absl::StrCat(bucket.rows(), "x", bucket.positions(), "p")
                                : absl::StrCat(bucket.tokens(), "x", bucket.rows());
}

bool WastedTime(const v1::ModelBuckets& model) {
  return model.last_hour().computed_tokens() > model.last_hour().useful_tokens();
}

std::string WasteText(const v1::ModelBuckets& model, const StrategyTrials* trials) {
  std::string text;
  if (model.last_hour().batches() == 0) {
    text = "no batch ran in the last hour";
  } else if (!WastedTime(model)) {
    text =
        "0.0% of the device's time in the last hour: it computed only rows with useful tokens, so "
        "no ladder wastes less";
  } else {
    text = absl::StrCat(Percent(model.wasted_share()),
                        " of the device's time in the last hour, on rows without a useful token");
    if (trials != nullptr) {
      const StrategyTrial& best = BestOf(*trials);
      absl::StrAppendFormat(
          &text,
          "; the best ladder (\"%s\") would waste %s, in a simulation of the last %d arrivals",
          best.name, Percent(best.wasted_share), trials->arrivals);
    }
  }
  return Labelled("wasted", kIndent, text);
}

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string Bar(double share, int width) {
  const double part = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const int filled = static_cast<int>(std::lround(part * width));
  return absl::StrCat("[", std::string(filled, '#'), std::string(width - filled, '.'), "]");
}

std::string AgeText(double seconds) {
  if (!(seconds >= 0)) return "never";
  if (seconds < 1) return absl::StrFormat("%.0f ms", 1000 * seconds);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 3600) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.0f h", seconds / 3600);
}

std::string BucketsText(const v1::ModelBuckets& model, const StrategyTrials* trials) {
  Table table({"BUCKET", "STATE", "BATCHES", "SHARE", "FILL", "EXECUTED", "HITS", "ROWS", "COST MS",
               "MIB", "USED"});
  for (const v1::BucketUse& use : model.buckets())
    table.AddRow(Row(use, model.last_hour().batches()));
  const auto in_ladder = std::count_if(model.buckets().begin(), model.buckets().end(),
                                       [](const v1::BucketUse& use) { return use.in_ladder(); });
  Table heading(
      {"MODEL", "VERSION", "DEVICE", "PROFILE", "ATTENTION", "POLICY", "STRATEGY", "BUCKETS"});
  heading.AddRow({model.model_name(), model.model_version(), model.device(), model.profile(),
                  model.attention(), model.policy(), model.strategy(), absl::StrCat(in_ladder)});
  return absl::StrCat(heading.Render(), "\n", table.Render(), "\n", TotalsText(model, trials));
}

std::string ReviewText(const v1::RunReviewResponse& response) {
  std::string text =
      absl::StrCat(response.changed() ? "Changed: " : "Unchanged: ", response.reason(), "\n");
  if (!response.changed()) return text;
  const auto line = [&](const char* label, const Buckets& buckets) {
    if (buckets.empty()) return;
    const std::string indent(std::string_view(label).size(), ' ');
    const auto names = Wrap(Names(buckets), kTerminalColumns - std::ssize(indent));
    absl::StrAppend(&text, label, absl::StrJoin(names, "\n" + indent), "\n");
  };
  line("before      ", response.before());
  line("after       ", response.after());
  line("added       ", response.added());
  line("removed     ", response.removed());
  line("merged      ", response.merged());
  line("split       ", response.split());
  absl::StrAppendFormat(&text,
                        "gain        %s of device time and mean latency (geometric mean) on the "
                        "recent traffic\n"
                        "bucket fill %s before, %s after, on the recent traffic\n",
                        Percent(response.gain()), Percent(response.bucket_fill_before()),
                        Percent(response.bucket_fill_after()));
  return text;
}

}  // namespace sluice::client
