#include "loadtest/load/report_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "loadtest/load/page_template.h"
#include "loadtest/load/report_json.h"

namespace sluice::load {
namespace {

using nlohmann::json;

absl::StatusOr<json> ReadReport(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool ours = report.is_object() && report.value("tool", json()) == "sluice-load" &&
                    report.value("format", json()) == kReportFormat && report.contains("phases") &&
                    report["phases"].is_array();
  if (!ours) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a report of sluice-load in format ", kReportFormat));
  }
  return report;
}

}  // namespace

absl::StatusOr<std::string> MakePage(const std::vector<std::string>& paths) {
  json reports = json::array();
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(json report, ReadReport(path));
    reports.push_back(std::move(report));
  }
  return RenderPage(reports);
}

std::string RenderPage(const json& reports) {
  const std::string text =
      reports.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  // The HTML parser interprets "</script>" and "<!--" even within a script.
  const std::string safe = absl::StrReplaceAll(text, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kPageTemplate, {{"/*REPORTS*/[]", safe}});
}

}  // namespace sluice::load
