"""The tulle command: what it can do, and what it writes."""

import json
import os
import re
import subprocess
import tempfile


def read_rows(path):
    """The rows of a file whose last line may be cut."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


class Program:
    """One build of the command."""

    def __init__(self, path):
        self.path = path

    def help(self, command):
        return subprocess.run([self.path, *command, "--help"], capture_output=True, text=True, check=True).stdout

    def has(self, command):
        """Whether there is such a command, e.g. ("bench", "codec"): each word is in the help of those before it."""
        return all(re.search(rf"^  {word} ", self.help(command[:place]), re.MULTILINE)
                   for place, word in enumerate(command))

    def rows(self, *arguments):
        """What a command writes with --json."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.jsonl")
            subprocess.run([self.path, *arguments, "--json", path], check=True, stdout=subprocess.DEVNULL)
            return read_rows(path)

    def commit(self):
        """As every row has it: of the smallest comparison there is."""
        return self.rows("bench", "allreduce", "--transport", "sim", "--ranks", "2", "--dimension", "64", "--density",
                         "0.1", "--algorithm", "auto")[0]["git_commit"]
