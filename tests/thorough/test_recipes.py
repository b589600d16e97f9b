"""Follows recipes of CONTRIBUTING.md in a copy of the tree. Only the files of the recipe change.

The copies are compiled, which takes minutes, so only ./test --thorough runs this folder.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build" / "release"))


def files_of(recipe):
    """Returns the files of the tree that a section of CONTRIBUTING.md names by their paths."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
    assert section, recipe
    return {name for name in re.findall(r"`([\w./-]+)`", section) if (ROOT / name).is_file()}


class Copy:
    """A copy of the tree. `edit` refuses files that the recipe does not name."""

    def __init__(self, folder, recipe):
        self.folder = folder
        self.allowed = files_of(recipe)
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                                cwd=ROOT, check=True, capture_output=True, text=True)
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
                shutil.copymode(ROOT / name, folder / name)

    def edit(self, name, before, added):
        """Puts a text before the first place of another one."""
        assert name in self.allowed, f"the recipe does not name {name}"
        text = (self.folder / name).read_text()
        assert before in text, (name, before)
        (self.folder / name).write_text(text.replace(before, added + before, 1))

    def add_test(self, name, before, added):
        """Changes a test, which a recipe need not name."""
        self.allowed |= {name}
        self.edit(name, before, added)

    def run(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    def build(self, target):
        self.run("cmake", "--preset", "release", "-DSLUICE_TESTS=ON", "-DSLUICE_BENCHMARKS=OFF")
        self.run("cmake", "--build", "build/release", "--target", target)

    def check_lists(self, *tests):
        """Runs tests of tests/tools."""
        self.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                 *(f"tests/tools/{test}" for test in tests))

    def make_docs(self, sluiced):
        self.run(sys.executable, "tools/make_docs.py", "--sluice", BUILD / "client" / "sluice",
                 "--sluiced", sluiced)


@pytest.fixture
def copy(tmp_path):
    return lambda recipe: Copy(tmp_path, recipe)


def test_an_error_reason_needs_no_other_files(copy):
    tree = copy("Adding an error reason")
    tree.edit("base/reason.h", "  kCancelled,\n", "  kStandstill,\n")
    tree.edit("base/reason.h", '    {Reason::kCancelled, "cancelled"',
              '    {Reason::kStandstill, "standstill", absl::StatusCode::kUnavailable, true,\n'
              '     AtFault::kServer, "A belt stands still.", "Start the belt."},\n')
    tree.add_test("tests/base/reason_test.cc", "}  // namespace\n",
                  "TEST(Reason, Standstill) {\n"
                  '  EXPECT_EQ(ReasonOf(ReasonError(Reason::kStandstill, "")),\n'
                  "            Reason::kStandstill);\n}\n")
    tree.edit("tests/tools/test_reasons.py", '    "cancelled": BY_CODE,\n',
              '    "standstill": ("base/reason_test.cc", "Standstill"),\n')
    tree.make_docs(BUILD / "server" / "sluiced")
    page = (tree.folder / "docs" / "errors.md").read_text()
    assert "standstill" in page and "Start the belt." in page
    tree.check_lists("test_reasons.py")
    tree.build("sluice_base_test")
    tree.run("build/release/tests/base/sluice_base_test", "--gtest_filter=Reason.*")


def test_a_normalizer_needs_no_other_files(copy):
    tree = copy("Adding a part of a tokenizer")
    tree.edit("engine/model/tokenizer/normalizer.cc", '  if (type == "Lowercase")',
              '  if (type == "Exclaim") {\n'
              "    const std::string mark = fields.String(\"mark\", kMaxAffixBytes);\n"
              "    return [mark](const TracedText& before) {\n"
              "      Rewriting made(before);\n"
              "      made.Keep(0, before.text.size());\n"
              "      made.text().Append(mark);\n"
              "      made.From(Rewriting::kNowhere);\n"
              "      return std::move(made).Finish();\n"
              "    };\n"
              "  }\n")
    tree.edit("docs/your_model.md", "| pre-tokenizer |", "")
    tree.add_test("tests/engine/model/tokenizer/parts_test.cc",
                  "TEST(UnicodeTest, TheRanges",
                  "TEST(NormalizerTest, Exclaims) {\n"
                  '  const auto json = nlohmann::json{{"type", "Exclaim"}, {"mark", "!"}};\n'
                  "  const auto normalizer = Normalizer::Parse(&json);\n"
                  "  ASSERT_TRUE(normalizer.ok()) << normalizer.status();\n"
                  '  EXPECT_EQ(normalizer->Apply(*OriginalText("ho", false))->text, "ho!");\n'
                  "}\n\n")
    tree.add_test("tests/engine/model/tokenizer/parts_test.cc",
                  '#include "engine/model/tokenizer/pattern.h"',
                  '#include "engine/model/tokenizer/normalizer.h"\n')
    tree.build("tokenize_test")
    tree.run("build/release/tests/engine/model/tokenizer/tokenize_test",
             "--gtest_filter=NormalizerTest.Exclaims")


def test_a_metric_needs_no_other_files(copy):
    tree = copy("Adding a metric")
    tree.edit("proto/metric_names.h", "inline constexpr Metric kRequests{",
              "inline constexpr Metric kCheered{\n"
              '    "sluice_cheered_total", "Requests that ended, each with a cheer."};\n')
    tree.edit("server/observe/metrics.cc", "  prometheus::Family<Counter>& rejected = ",
              "  prometheus::Family<Counter>& cheered = AddCounter(metric::kCheered);\n")
    tree.edit("server/observe/metrics.cc", "  // Both exist from the start, so",
              "  Counter& cheered = own.Add(families.cheered, labels);\n")
    tree.edit("server/observe/metrics.cc",
              "  series.admit.Observe(Seconds(trace.queued - trace.received));\n",
              "  series.cheered.Increment();\n")
    tree.add_test("tests/server/observe/metrics_test.cc",
                  "TEST_F(MetricsTest, DurationsEqualTheTraces",
                  "TEST_F(MetricsTest, CountsCheers) {\n"
                  "  metrics_.OnRequestDone(request_, absl::OkStatus(), trace_);\n"
                  '  EXPECT_EQ(Sum("sluice_cheered_total"), 1);\n}\n\n')
    tree.make_docs(BUILD / "server" / "sluiced")
    assert "`sluice_cheered_total`" in (tree.folder / "docs" / "metrics.md").read_text()
    tree.check_lists("test_named_in_tests.py::test_a_test_names_each_metric")
    tree.build("sluice_edge_test")
    tree.run("build/release/tests/server/sluice_edge_test", "--gtest_filter=MetricsTest.*")


def test_an_option_needs_no_other_files(copy):
    tree = copy("Adding or changing an option")
    tree.edit("server/common/options.h", "  double access_sample = 0.01;\n",
              "  int64_t longest_line_bytes = 0;\n")
    tree.edit("server/common/option_specs.cc", "      Live(SLUICE_OPTION(access_sample,",
              "      Advanced(SLUICE_OPTION(longest_line_bytes, Size(0, kTebibyte),\n"
              '                             "The longest line of the log. 0: no limit.")),\n')
    tree.edit("tools/bounds.py", '    "server.log.access_sample":',
              '    "server.log.longest_line_bytes": "a line of the log",\n')
    tree.build("sluiced")
    sluiced = tree.folder / "build" / "release" / "server" / "sluiced"
    tree.run("bash", "-c", f"{sluiced} --print-default-config >config/sluice.yaml")
    tree.make_docs(sluiced)
    tree.run(sys.executable, "tests/fuzz/make_corpus.py")
    assert "`server.log.longest_line_bytes`" in (tree.folder / "docs" / "options.md").read_text()
    tree.check_lists("test_bounds.py", "test_fuzz_corpus.py")
    tree.build("config_test")
    tree.run("build/release/tests/config/config_test")
