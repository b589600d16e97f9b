#include "loadtest/scale/scale_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::loadtest {
namespace {

constexpr double kWidth = 960, kPanel = 200, kGap = 46, kLeft = 62, kRight = 18, kTop = 64;
constexpr std::array kColours = {"#0b62a4", "#c2410c", "#6b7280", "#15803d"};

// One chart of the image, whose curves run over the hours of the day.
struct Panel {
  std::string title;
  bool logarithmic = false;
  double low = 0, high = 1;
  std::vector<double> ticks{};
  double y = 0;  // the position of its top edge

  double Y(double value) const {
    const auto scale = [&](double v) { return logarithmic ? std::log10(v) : v; };
    const double share =
        (scale(std::clamp(value, low, high)) - scale(low)) / (scale(high) - scale(low));
    return y + kPanel * (1 - share);
  }
};

class Plot {
 public:
  Plot(const std::vector<FleetRun>& runs, const FleetOptions& options)
      : runs_(runs), options_(options) {
    const std::vector<FleetBin>& bins = runs.front().result.bins;
    hours_ = static_cast<double>(bins.size()) * options.bin_seconds / 3600;
  }

  std::string Draw() {
    Replicas();
    Latency();
    Cost();
    const double height = kTop + 3 * (kPanel + kGap);
    return absl::StrFormat(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n"
               "<rect width=\"%g\" height=\"%g\" fill=\"#fff\"/>\n",
               kWidth, height, kWidth, height) +
           Legend() + body_ + "</svg>\n";
  }

 private:
  double X(double hour) const { return kLeft + hour / hours_ * (kWidth - kLeft - kRight); }

  void Replicas() {
    double most = 0;
    for (const FleetRun& run : runs_) {
      for (const FleetBin& bin : run.result.bins) most = std::max(most, bin.replicas);
    }
    Panel panel{.title = "Replicas", .high = std::ceil(most) + 1};
    const double step = std::ceil(panel.high / 6);
    for (double tick = 0; tick <= panel.high; tick += step) panel.ticks.push_back(tick);
    Frame(&panel);
    Curves(panel, [](const FleetBin& bin, double) { return bin.replicas; });
  }

  void Latency() {
    double most = options_.objective_seconds, least = most;
    for (const FleetRun& run : runs_) {
      for (const FleetBin& bin : run.result.bins) {
        most = std::max(most, bin.p99_seconds);
        if (bin.p99_seconds > 0) least = std::min(least, bin.p99_seconds);
      }
    }
    Panel panel{.title = "99th percentile of the latency, s",
                .logarithmic = true,
                .low = std::pow(10, std::floor(std::log10(least))),
                .high = std::pow(10, std::ceil(std::log10(most)))};
    for (double tick = panel.low; tick <= panel.high * 1.001; tick *= 10)
      panel.ticks.push_back(tick);
    Frame(&panel);
    const double y = panel.Y(options_.objective_seconds);
    absl::StrAppendFormat(&body_,
                          "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#111\" "
                          "stroke-dasharray=\"5 4\"/>\n",
                          kLeft, kWidth - kRight, y, y);
    Curves(panel, [](const FleetBin& bin, double) { return bin.p99_seconds; });
  }

  void Cost() {
    double most = 0;
    for (const FleetRun& run : runs_) most = std::max(most, run.result.replica_hours);
    Panel panel{.title = "Cost so far, replica hours", .high = most * 1.05};
    const double step = std::pow(10, std::floor(std::log10(most)));
    const double coarse = most / step < 3 ? step / 2 : step;
    for (double tick = 0; tick <= panel.high; tick += coarse) panel.ticks.push_back(tick);
    Frame(&panel);
    Curves(panel, [this](const FleetBin& bin, double sum) {
      return sum + bin.replicas * options_.bin_seconds / 3600;
    });
  }

  // Places the panel below the last one and draws its title, grid and hours.
  void Frame(Panel* panel) {
    panel->y = next_y_;
    next_y_ += kPanel + kGap;
    absl::StrAppendFormat(&body_, "<text x=\"%g\" y=\"%g\" font-weight=\"bold\">%s</text>\n", kLeft,
                          panel->y - 8, panel->title);
    for (const double tick : panel->ticks) {
      absl::StrAppendFormat(
          &body_,
          "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
          "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\" fill=\"#444\">%g</text>\n",
          kLeft, kWidth - kRight, panel->Y(tick), panel->Y(tick), kLeft - 8, panel->Y(tick) + 4,
          tick);
    }
    for (int i = 0; i <= 8; ++i) {
      const double hour = hours_ * i / 8;
      absl::StrAppendFormat(
          &body_, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"%s\" fill=\"#444\">%s h</text>\n",
          X(hour), panel->y + kPanel + 17, i == 8 ? "end" : "middle",
          absl::StrFormat("%.3g", hour));
    }
  }

  // Draws one curve for each run. `value` gets a bin and its own result for the previous bin.
  void Curves(const Panel& panel, const std::function<double(const FleetBin&, double)>& value) {
    for (size_t i = runs_.size(); i-- > 0;) {  // the first run is on top
      std::string points;
      double last = 0;
      for (const FleetBin& bin : runs_[i].result.bins) {
        last = value(bin, last);
        absl::StrAppendFormat(&points, "%.1f,%.1f ", X(bin.begin_seconds / 3600), panel.Y(last));
      }
      absl::StrAppendFormat(
          &body_, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>\n",
          points, kColours[i % kColours.size()]);
    }
  }

  std::string Legend() const {
    std::string legend;
    double x = kLeft;
    for (size_t i = 0; i < runs_.size(); ++i) {
      absl::StrAppendFormat(&legend,
                            "<rect x=\"%g\" y=\"17\" width=\"22\" height=\"4\" fill=\"%s\"/>"
                            "<text x=\"%g\" y=\"24\">%s</text>\n",
                            x, kColours[i % kColours.size()], x + 28, runs_[i].name);
      x += 52 + 6.6 * static_cast<double>(runs_[i].name.size());
    }
    return legend;
  }

  const std::vector<FleetRun>& runs_;
  const FleetOptions& options_;
  double hours_ = 0;
  double next_y_ = kTop;
  std::string body_;
};

double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

}  // namespace

std::string ScaleTable(const std::vector<FleetRun>& runs, const FleetOptions& options) {
  std::string text = absl::StrFormat(
      "| fleet | replicas | replica hours | p50 s | p99 s | within %g s | changes |\n"
      "|---|---|---|---|---|---|---|\n",
      options.objective_seconds);
  for (const FleetRun& run : runs) {
    const FleetResult& r = run.result;
    absl::StrAppendFormat(&text, "| %s | %d to %d | %.1f | %.3f | %.3f | %.4f | %d |\n", run.name,
                          r.least, r.most, r.replica_hours, r.p50_seconds, r.p99_seconds,
                          r.share_within, r.changes);
  }
  return text;
}

nlohmann::json ScaleToJson(const std::vector<FleetRun>& runs, const FleetOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FleetRun& run : runs) {
    const FleetResult& r = run.result;
    nlohmann::json replicas, p99;
    for (const FleetBin& bin : r.bins) {
      replicas.push_back(Rounded(bin.replicas));
      p99.push_back(Rounded(bin.p99_seconds));
    }
    rows.push_back({{"fleet", run.name},
                    {"least_replicas", r.least},
                    {"most_replicas", r.most},
                    {"changes", r.changes},
                    {"replica_hours", Rounded(r.replica_hours)},
                    {"p50_seconds", Rounded(r.p50_seconds)},
                    {"p99_seconds", Rounded(r.p99_seconds)},
                    {"share_within", Rounded(r.share_within)},
                    {"bin_replicas", replicas},
                    {"bin_p99_seconds", p99}});
  }
  return {{"objective_seconds", options.objective_seconds},
          {"startup_seconds", options.startup_seconds},
          {"drain_delay_seconds", options.drain_delay_seconds},
          {"scrape_seconds", options.scrape_seconds},
          {"sync_seconds", options.sync_seconds},
          {"bin_seconds", options.bin_seconds},
          {"max_batch_tokens", options.batch.max_batch_tokens},
          {"cost_base_seconds", options.costs.base_seconds},
          {"cost_seconds_per_token",
           options.costs.seconds_per_computed_token + options.costs.seconds_per_bucket_token},
          {"runs", rows}};
}

std::string ScalePlot(const std::vector<FleetRun>& runs, const FleetOptions& options) {
  return Plot(runs, options).Draw();
}

}  // namespace sluice::loadtest
