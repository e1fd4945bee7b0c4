"""The file of rows: what is in it already, and what is added."""

import json
import os
import zlib


class Results:
    """Rows of one file, of which those with `commit` count as done."""

    def __init__(self, path, commit):
        self.path = path
        self.commit = commit
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.mend()

    def rows(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]

    def mend(self):
        """Drop a last line that a killed run left without its end."""
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb+") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)

    def append(self, rows):
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def part(self, case):
        """The file that a case writes while it runs. Its name is the case's, so a killed run's rows are found again."""
        return f"{self.path}.{zlib.crc32(str(case).encode()):08x}.part"

    def densities_left(self, case):
        """The densities of a comparison that have no row of this commit yet."""
        done = {row["density"] for row in self._done() if self._is_of(row, case)}
        return [density for density in case.densities if density not in done]

    def has(self, case):
        """Whether a case without densities has rows of this commit."""
        return any(row.get("suite_case") == str(case) for row in self._done())

    def _done(self):
        return (row for row in self.rows() if row.get("git_commit") == self.commit)

    def _is_of(self, row, case):
        return row.get("suite_case") == str(case) and "density" in row
