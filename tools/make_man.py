#!/usr/bin/env python3
"""Writes the man pages sluiced.1 and sluice.1 from what the programs print as their help.

  tools/make_man.py --build build/release FOLDER
"""

import argparse
import pathlib
import re
import subprocess

from make_docs import ROOT, options

VERSION = re.search(r"project\(sluice VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def roff(text):
    """Returns plain text for troff: backslashes, hyphens and leading dots have no meaning there."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def header(name, summary):
    return [f'.TH {name.upper()} 1 "" "Sluice {VERSION}"', ".SH NAME", roff(f"{name} - {summary}")]


def printed(command, *arguments):
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout


def daemon_page(sluiced):
    """Returns sluiced.1, with an entry for each option."""
    lines = header("sluiced", "gRPC inference server for transformer models")
    lines += [".SH SYNOPSIS", roff("sluiced --config FILE"), ".br",
              roff("sluiced --model NAME=DIR [--OPTION VALUE]..."), ".SH DESCRIPTION",
              roff("Each option below is a key of the YAML file of --config, a flag and a variable"
                   " of the environment: engine.batch.max_batch_tokens is"
                   " --engine.batch.max-batch-tokens and SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS."
                   " sluiced --help lists the other flags."), ".SH OPTIONS"]
    for section, name, effect, values, when in options(printed(sluiced, "--help-all")):
        name = f"models: {name}" if section == "models" else name
        lines += [".TP", f"\\fB{roff(name)}\\fR", roff(effect),
                  roff(f"Expects {values} A change takes effect at a {when}.")]
    lines += [".SH FILES", ".TP", "/etc/sluice/sluice.yaml",
              "The configuration of the service.", ".TP", "/var/lib/sluice",
              "The ladder file of the service.", ".SH SEE ALSO", "sluice(1)"]
    return "\n".join(lines) + "\n"


def client_page(sluice):
    """Returns sluice.1, with a section for each command."""
    text = printed(sluice, "--help")
    lines = header("sluice", "client of the inference server sluiced")
    lines += [".SH SYNOPSIS", roff("sluice COMMAND [OPTION]..."), ".SH OPTIONS", ".nf",
              roff(text), ".fi", ".SH COMMANDS"]
    for command in re.findall(r"^  ([a-z]+) ", text.partition("Subcommands:")[2], re.M):
        if command == "serve":  # It is another program's, which prints its own help.
            continue
        lines += [f".SS {command}", ".nf", roff(printed(sluice, command, "--help")), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", "sluiced(1)"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the folder of a build")
    parser.add_argument("--emulator", default="", type=str.split, metavar="COMMAND",
                        help="what runs the programs, such as qemu with its options")
    parser.add_argument("folder", type=pathlib.Path, help="the folder to write")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    run = given.emulator
    for name, page in (("sluiced", daemon_page([*run, given.build / "server" / "sluiced"])),
                       ("sluice", client_page([*run, given.build / "client" / "sluice"]))):
        (given.folder / f"{name}.1").write_text(page)


if __name__ == "__main__":
    main()
