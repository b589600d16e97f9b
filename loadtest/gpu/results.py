"""The output folder of a check. Its contents are complete at any moment.

    cases.jsonl              one record a line, flushed: each case with its outcome and figures
    gpu_check.log            the output of all programs
    gpu_check.json, .md      the report, rewritten after each part
    gpu_check_raw.tar.gz     logs by part, profiles, and other files that the programs wrote
"""

import json
import os
import pathlib
import shutil
import tarfile
import tempfile

# Cases whose outcome begins with one of these are not repeated by a later run.
SETTLED = ("ok", "failed", "skipped", "crashed", "hung", "not measured")
NO_TIME = "no time"
MOST_RAW_BYTES = 15 << 20


class Log:
    """A log file. Child processes append to it as well."""

    def __init__(self, path):
        self.file = open(path, "ab", buffering=0)
        self._path = path

    def write(self, text):
        self.file.write(text.encode(errors="replace"))

    def mark(self):
        return os.fstat(self.file.fileno()).st_size

    def since(self, mark, most=3000):
        """Returns the last part of the text that was written since the mark."""
        with open(self._path, "rb") as file:
            file.seek(max(mark, self.mark() - most))
            return file.read().decode(errors="replace")

    def copy(self, mark, path):
        with open(self._path, "rb") as file, open(path, "wb") as part:
            file.seek(mark)
            shutil.copyfileobj(file, part)


class Results:
    def __init__(self, out, resume_from=None):
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self._lines = self.out / "cases.jsonl"
        if resume_from is None:
            self._lines.unlink(missing_ok=True)
        elif pathlib.Path(resume_from).resolve() != self.out.resolve():
            shutil.copyfile(pathlib.Path(resume_from) / "cases.jsonl", self._lines)
        self.records = read_records(self.out)
        self._file = open(self._lines, "a")
        self.raw = pathlib.Path(tempfile.mkdtemp(prefix="gpu_check_raw."))
        self.log = Log(self.out / "gpu_check.log")

    def add(self, **record):
        self.records.append(record)
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def settled(self, part):
        """Returns the cases of the part that have an outcome."""
        return {
            record["case"]
            for record in self.records
            if record.get("part") == part and "case" in record
            and record["outcome"].startswith(SETTLED)
        }

    def pack(self):
        """Rewrites the archive of raw files, without files that do not fit into it."""
        files = sorted((path for path in self.raw.rglob("*") if path.is_file()),
                       key=lambda path: path.stat().st_size)
        archive = self.out / "gpu_check_raw.tar.gz"
        partial = archive.with_name("partial.tar.gz")
        while True:
            with tarfile.open(partial, "w:gz", compresslevel=6) as tar:
                for path in files:
                    tar.add(path, path.relative_to(self.raw))
            if partial.stat().st_size <= MOST_RAW_BYTES or not files:
                break
            self.log.write(f"gpu_check: {files[-1].name} is too large for the archive\n")
            files.pop()
        partial.rename(archive)

    def close(self):
        self.pack()
        self._file.close()
        shutil.rmtree(self.raw, ignore_errors=True)


def read_records(out):
    """Returns the records of a folder. Skips a line that was cut off."""
    records = []
    try:
        lines = (pathlib.Path(out) / "cases.jsonl").read_text().splitlines()
    except OSError:
        return records
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
