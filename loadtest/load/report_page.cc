#include "loadtest/load/report_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "loadtest/load/page_template.h"
#include "loadtest/load/report_json.h"
#include "loadtest/trace/trace_file.h"

namespace sluice::load {
namespace {

using nlohmann::json;

absl::StatusOr<json> ReadReport(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  json report = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const bool ours = report.is_object() && report.value("tool", json()) == "sluice-load" &&
                    report.value("format", json()) == kReportFormat && report.contains("phases") &&
                    report["phases"].is_array();
  if (!ours) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no report of sluice-load, format ", kReportFormat));
  }
  return report;
}

}  // namespace

absl::StatusOr<std::string> MakePage(const std::vector<std::string>& paths) {
  json reports = json::array();
  for (const std::string& path : paths) {
    absl::StatusOr<json> report = ReadReport(path);
    if (!report.ok()) return report.status();
    reports.push_back(*std::move(report));
  }
  return RenderPage(reports);
}

std::string RenderPage(const json& reports) {
  const std::string text =
      reports.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  // "</script>" and "<!--" mean something to the HTML parser even within a script.
  const std::string safe = absl::StrReplaceAll(text, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kPageTemplate, {{"/*REPORTS*/[]", safe}});
}

}  // namespace sluice::load
