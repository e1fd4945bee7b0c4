"""tulle report as people use it: the command, and its page in a real browser. TULLE is the program.

The page's tests skip where chromium or chromedriver is missing.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from browser import CHROMEDRIVER, CHROMIUM, Browser  # noqa: E402

TULLE = os.environ["TULLE"]
HOSTILE = "</script ><!--<script><img src=x onerror=\"document.title='broken'\"> \"quoted\" 'and' \\u003cb\\u003e"


def tulle(*arguments):
    return subprocess.run([TULLE, *arguments], capture_output=True, text=True, timeout=60)


def row(**fields):
    return {"algorithm": "ssar_split_allgather", "chosen": "ssar_split_allgather", "ranks": 4, "transport": "sim",
            "dimension": 4096, "density": 0.01, "nnz": 41, "type": "f32", "op": "sum", "seconds_median": 1e-3,
            "seconds_q1": 9e-4, "seconds_q3": 2e-3, "bytes_sent_max": 1000, "bytes_sent_total": 4000, "verified": True,
            **fields}


class ReportCase(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.page = os.path.join(directory.name, "report.html")
        self.results = os.path.join(directory.name, "rows.jsonl")

    def write(self, *lines):
        with open(self.results, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

    def report(self, *flags):
        return tulle("report", self.results, "-o", self.page, *flags)


class Command(ReportCase):
    def test_bad_lines_are_named_by_file_number_and_reason(self):
        self.write(json.dumps(row()), "{broken", "[1]", "", json.dumps(row(ranks="four")),
                   json.dumps({"kind": "train"}))
        failed = self.report()
        self.assertEqual(failed.returncode, 1)
        self.assertFalse(os.path.exists(self.page))
        for word in (f"{self.results}:2: is not JSON", ":3: is not a JSON object", ":5: 'ranks' is not a number",
                     ":6: 'epoch' is missing", "--skip-bad"):
            self.assertIn(word, failed.stderr)

    def test_bad_lines_can_be_skipped(self):
        self.write("{broken", json.dumps(row()))
        done = self.report("--skip-bad")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(":1: is not JSON", done.stderr)
        self.assertIn("1 rows", done.stdout)

    def test_unknown_kinds_and_fields_are_accepted(self):
        self.write(json.dumps({"kind": "later", "what": 1}), json.dumps(row(new_field=[1, {"deep": None}])))
        self.assertEqual(self.report().returncode, 0)

    def test_what_cannot_be_read_or_written_is_told(self):
        self.assertEqual(tulle("report", "/nonexistent.jsonl").returncode, 2)
        self.write("")
        self.assertIn("no rows", self.report().stderr)
        self.write(json.dumps(row()))
        failed = tulle("report", self.results, "-o", "/nonexistent/page.html")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("/nonexistent/page.html", failed.stderr)

    def test_the_page_needs_no_other_file(self):
        self.write(json.dumps(row()))
        self.report()
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        for reference in ("<link rel=\"stylesheet\"", "<script src", "@import", "url(http"):
            self.assertNotIn(reference, text)
        self.assertNotIn("@DATA@", text)


@unittest.skipUnless(CHROMIUM and CHROMEDRIVER, "needs chromium and chromium-driver")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        results, cls.page = (os.path.join(cls.directory.name, name) for name in ("rows.jsonl", "report.html"))
        for ranks in ("2", "4"):
            done = tulle("bench", "allreduce", "--transport", "sim", "--ranks", ranks, "--dimension", "64K",
                         "--density", "0.001", "0.01", "0.1", "--json", results)
            assert done.returncode == 0, done.stderr
        with open(results, "a", encoding="utf-8") as file:
            for extra in cls.extra_rows():
                file.write(json.dumps(extra) + "\n")
        done = tulle("report", results, "-o", cls.page)
        assert done.returncode == 0, done.stderr
        cls.browser = cls.enterClassContext(Browser())

    @staticmethod
    def extra_rows():
        yield row(algorithm=HOSTILE, chosen=HOSTILE, dimension=65536, overlap="uniform", input="matching")
        yield row(lab=json.dumps({"rate": "1gbit", "hosts": 4}), transport="mpi", wire_bytes_sent_total=4200)
        for epoch in (1, 2, 3):
            yield {"kind": "train_linear", "data": "/some/url.tcsr", "model": "logistic", "aggregation": "auto",
                   "ranks": 4, "transport": "threads", "epoch": epoch, "objective": 1 / epoch, "seconds": 2.0 * epoch,
                   "communication_seconds": 0.5 * epoch, "bytes_sent": 1e6 * epoch}
        yield row(algorithm="spardl", chosen="spardl", k=41, select_seconds=1e-4, teams=1, depth=4, data_bytes_max=500)
        yield {"kind": "select", "algorithm": "exact_top_k", "dimension": 65536, "density": 0.01, "ratio": 1.5,
               "seconds_median": 1e-4}
        yield {"kind": "codec", "algorithm": "rice", "direction": "encode", "seconds_median": 1e-4, "ratio": 2.5}
        for recipe in ("dense", "topk:1%"):
            yield {"kind": "gradient", "recipe": recipe, "shapes": "resnet20", "ranks": 4, "transport": "sim",
                   "values": 269722, "seconds_median": 1e-3, "ratio": 1.0, "bytes_sent_max": 1000, "density": 1,
                   "every": 1, "verified": True}
            for step in (1, 2):
                yield {"kind": "stats", "recipe": recipe, "step": step, "seconds": 1e-3, "ranks": 4, "values": 8192,
                       "parameters": [{"parameter": HOSTILE, "select_seconds": 1e-4 * step, "wait_seconds": 5e-4}]}

    def setUp(self):
        self.browser.prefer_dark(False)
        self.browser.resize(1280, 900)
        self.browser.open(self.page)

    def chart(self, section, script):
        """What `script` returns about the first chart of a section, `chart`."""
        find = "const chart = Chart.getChart(document.querySelector(`#${arguments[0]} canvas`));"
        return self.browser.run(find + script, section)

    def test_every_section_renders_without_a_word_on_the_console(self):
        self.assertEqual(self.browser.console(), [])
        for section in ("time", "winners", "bytes", "wire", "topk", "parts", "selectors", "codecs", "recipes", "stages", "loss",
                        "papers"):
            with self.subTest(section=section):
                self.assertGreater(self.chart(section, "return chart.data.datasets.length"), 0)
        drawn = self.chart("time", """const {width, height} = chart.canvas;
            const pixels = chart.ctx.getImageData(0, 0, width, height).data;
            return pixels.filter((value, index) => index % 4 === 3 && value > 0).length""")
        self.assertGreater(drawn, 5000)

    def test_recipes_have_a_bar_each_and_stages_are_means_over_steps(self):
        self.assertEqual(self.chart("recipes", "return chart.data.labels"), ["dense", "topk:1%"])
        select = self.chart("stages", "return chart.data.datasets.find((set) => set.label === 'select').data")
        self.assertEqual([round(value, 9) for value in select], [1.5e-4, 1.5e-4])

    def test_a_filter_changes_the_charts(self):
        count = "return document.querySelectorAll('#time canvas').length"
        before = self.browser.run(count)
        self.browser.run("const select = document.getElementById('filter-ranks'); select.value = '2';"
                         "select.dispatchEvent(new Event('change'));")
        after = self.browser.run("return [...document.querySelectorAll('#time h3')].map((title) => title.textContent)")
        self.assertLess(len(after), before)
        self.assertTrue(all("P = 2" in title for title in after), after)

    def test_a_chip_hides_its_algorithm(self):
        names = "return chart.data.datasets.map((dataset) => dataset.label)"
        self.browser.run("document.getElementById('filter-network').value = 'simulation';"
                         "document.getElementById('filter-network').dispatchEvent(new Event('change'));")
        self.assertIn("dense_ring", self.chart("time", names))
        self.browser.run("const chips = [...document.querySelectorAll('.chip')];"
                         "chips.find((chip) => chip.textContent === 'dense_ring').click()")
        self.assertNotIn("dense_ring", self.chart("time", names))

    def test_hover_shows_the_value(self):
        x, y = self.chart("time", "const {x, y} = chart.getDatasetMeta(0).data[0]; return [x, y]")
        self.browser.hover("#time canvas", x, y)
        shown = self.browser.wait_until("""const {tooltip} = Chart.getChart(document.querySelector('#time canvas'));
            return tooltip.opacity > 0 && tooltip.body.flatMap((part) => part.lines).join(' ')""")
        self.assertRegex(shown, r"ssar_split_allgather: 1 ms quartiles 900 µs to 2 ms")

    def test_names_from_files_stay_text(self):
        chips = self.browser.run("return [...document.querySelectorAll('.chip')].map((chip) => chip.textContent)")
        self.assertIn(HOSTILE, chips)
        self.assertEqual(self.browser.run("return document.title"), "Tulle: measurements")
        self.assertEqual(self.browser.run("return document.images.length"), 0)

    def test_dark_follows_the_system_and_the_button(self):
        colour = "return getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(colour)
        self.browser.prefer_dark(True)
        self.browser.wait_until("return document.documentElement.dataset.theme === 'dark'")
        self.assertNotEqual(self.browser.run(colour), light)
        self.browser.click("#theme")
        self.assertEqual(self.browser.run(colour), light)

    def test_a_phone_needs_no_sideways_scrolling(self):
        self.browser.resize(390, 844)
        self.browser.open(self.page)
        width, widest = self.browser.run("""
            for (const details of document.querySelectorAll('details')) details.open = true;
            return [innerWidth, document.documentElement.scrollWidth]""")
        self.assertEqual((width, widest), (390, 390))

    def test_tables_hold_the_rows_and_sort(self):
        texts = """const details = document.querySelector('#winners details'); details.open = true;
            const titles = [...details.querySelectorAll('th')];
            const place = titles.findIndex((title) => title.textContent === 'median');
            if (arguments[0]) titles[place].click();
            return [...details.querySelectorAll('tbody tr')].map((row) => row.children[place].textContent)"""
        unsorted, ascending, descending = (self.browser.run(texts, click) for click in (False, True, True))
        self.assertEqual(sorted(unsorted), sorted(ascending))
        self.assertEqual(ascending, descending[::-1])

    def test_paper_is_light_and_shows_every_table(self):
        self.browser.prefer_dark(True)
        state = ("return [document.documentElement.dataset.theme,"
                 "document.querySelectorAll('details:not([open])').length]")
        self.browser.run("addEventListener('afterprint', () => {}, true); addEventListener('beforeprint', () => {"
                         "window.printed = (() => {" + state + "})(); });")
        path = os.path.join(self.directory.name, "page.pdf")
        self.browser.print_pdf(path)
        self.assertEqual(self.browser.run("return window.printed"), ["light", 0])
        self.assertGreater(os.path.getsize(path), 20000)
        self.assertEqual(self.browser.run(state)[0], "dark")


if __name__ == "__main__":
    unittest.main()
