#include "loadtest/load/daemon_metrics.h"

#include <gtest/gtest.h>

#include "loadtest/load/report_json.h"

namespace sluice::load {
namespace {

constexpr char kPage[] = R"(# HELP sluice_build_info Always 1
sluice_build_info{version="1"} 1
sluice_requests_total{model="m",code="OK"} 90
sluice_requests_total{model="m",code="INTERNAL"} 4
sluice_requests_total{model="n",code="OK"} 1000
sluice_rejected_total{model="m",reason="queue_full"} 6
sluice_requests_waiting{model="m"} 3
sluice_tokens_total{model="m",kind="useful"} 600
sluice_tokens_total{model="m",kind="computed"} 750
sluice_tokens_total{model="m",kind="bucket"} 1000
sluice_prefix_tokens_total{model="m",result="hit"} 100
sluice_prefix_tokens_total{model="m",result="miss"} 500
sluice_batches_total{model="m",trigger="full"} 7
sluice_batches_total{model="m",trigger="idle"} 3
sluice_bucket_capacity_tokens{model="m",bucket="128"} 128
sluice_bucket_batches_total{model="m",bucket="128",result="hit",reason=""} 8
sluice_bucket_batches_total{model="m",bucket="128",result="miss",reason="evicted"} 2
sluice_bucket_tokens_total{model="m",bucket="128",kind="useful"} 768
sluice_bucket_tokens_total{model="m",bucket="128",kind="computed"} 960
sluice_bucket_tokens_total{model="m",bucket="128",kind="capacity"} 1280
sluice_bucket_capacity_tokens{model="m",bucket="256"} 256
sluice_bucket_batches_total{model="m",bucket="256",result="hit",reason=""} 0
sluice_bucket_tokens_total{model="m",bucket="256",kind="useful"} 0
sluice_bucket_tokens_total{model="m",bucket="256",kind="capacity"} 0
sluice_bucket_batches_total{model="m",bucket="other",result="hit",reason=""} 7
)";

TEST(ParseReading, SumsOverTheOtherLabelsOfTheModel) {
  const auto reading = ParseReading(kPage, "m");
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_EQ(reading->ok, 90);
  EXPECT_EQ(reading->other, 4);
  EXPECT_EQ(reading->rejected, 6);
  EXPECT_EQ(reading->waiting, 3);
  EXPECT_EQ(reading->batches, 10);
  EXPECT_EQ(reading->reused_tokens, 100);
  EXPECT_EQ(reading->prompt_tokens, 600);
  ASSERT_EQ(reading->buckets.size(), 2u);
  EXPECT_EQ(reading->buckets.at("128").tokens, 128);
  EXPECT_EQ(reading->buckets.at("128").batches, 10) << "hits and misses";
  EXPECT_DOUBLE_EQ(reading->buckets.at("128").bucket_fill, 0.6);
  EXPECT_EQ(reading->buckets.at("256").bucket_fill, 0) << "never used";
}

TEST(ParseReading, RefusesOtherPages) {
  EXPECT_FALSE(ParseReading("up 1\n", "m").ok());
  EXPECT_FALSE(ParseReading("<html>", "m").ok());
}

TEST(ServerJson, ShowsTheDifferenceBetweenReadings) {
  const auto page = ParseReading(kPage, "m");
  ASSERT_TRUE(page.ok());
  Reading later = *page;
  later.at_s = 1;
  later.useful_tokens += 60;
  later.bucket_tokens += 100;
  later.computed_tokens += 80;
  later.batches += 2;
  later.reused_tokens += 15;
  later.prompt_tokens += 60;
  later.buckets["128"].batches += 2;
  Reading last = later;
  last.at_s = 1.1;
  const nlohmann::json server = ServerJson({*page, later, last}, {});
  EXPECT_EQ(server["bucket_fill"], 0.6);
  EXPECT_EQ(server["executed_efficiency"], 0.75);
  EXPECT_EQ(server["reused_share"], 0.25);
  ASSERT_EQ(server["series"].size(), 1u);
  EXPECT_EQ(server["series"][0]["batch_tokens"], 30);
  ASSERT_EQ(server["buckets"].size(), 1u) << "only the used buckets";
  EXPECT_EQ(server["buckets"][0]["batches"], 2);
  EXPECT_TRUE(ServerJson({*page, *page}, {})["bucket_fill"].is_null());
  EXPECT_TRUE(ServerJson({*page, *page}, {})["reused_share"].is_null()) << "no prompt was started";
}

TEST(Reconcile, CountsFromTheFirstReadingToTheLast) {
  const auto page = ParseReading(kPage, "m");
  ASSERT_TRUE(page.ok());
  Reading later = *page;
  later.ok += 50;
  later.rejected += 5;
  const Reconciliation counts = Reconcile(*page, later, 48, 2);
  EXPECT_EQ(counts.server_ok, 50);
  EXPECT_EQ(counts.server_rejected, 5);
  EXPECT_TRUE(counts.Agrees()) << "two answers came after the client had given up";
  EXPECT_FALSE(Reconcile(*page, later, 47, 2).Agrees());
  EXPECT_FALSE(Reconcile(*page, later, 51, 2).Agrees());
}

}  // namespace
}  // namespace sluice::load
