"""The tulle command beside scikit-learn's solvers on the same rows. Skips where scikit-learn is missing."""
import json
import os
import subprocess
import tempfile
import unittest

try:
    import numpy
    import sklearn.datasets
    import sklearn.linear_model
    import sklearn.svm
except ImportError:
    numpy = None

TULLE = os.environ["TULLE"]


@unittest.skipIf(numpy is None, "scikit-learn is not there")
class BesideScikitLearn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        random = numpy.random.RandomState(1)
        cls.rows = numpy.where(random.rand(400, 20) < 0.3, random.randn(400, 20), 0)
        cls.target = cls.rows @ random.randn(20) + 0.3 * random.randn(400) + 0.5
        cls.directory = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def objective(self, labels, *flags):
        data, lines = (os.path.join(self.directory.name, name) for name in ("rows.svm", "epochs.jsonl"))
        sklearn.datasets.dump_svmlight_file(self.rows, labels, data, zero_based=False)
        if os.path.exists(lines):
            os.remove(lines)
        run = subprocess.run([TULLE, "train", "linear", "--data", data, "--ranks", "2", "--json", lines, *flags],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(lines) as file:
            return [json.loads(line)["objective"] for line in file][-1]

    SOLVERS = {"sgd": ["--epochs", "300", "--batch", "50", "--rate", "0.5"],
               "scd": ["--solver", "scd", "--epochs", "60", "--coordinates", "5"]}

    def expect_near(self, expected, labels, *flags, solvers=("sgd", "scd")):
        for solver in solvers:
            with self.subTest(solver=solver):
                self.assertLess(self.objective(labels, *flags, *self.SOLVERS[solver]), expected * 1.01 + 1e-4)

    def test_logistic_regression_with_l2(self):
        labels = numpy.sign(self.target)
        model = sklearn.linear_model.LogisticRegression(C=1 / (400 * 0.01), tol=1e-8).fit(self.rows, labels)
        margins = labels * (self.rows @ model.coef_[0] + model.intercept_[0])
        expected = numpy.log1p(numpy.exp(-margins)).mean() + 0.005 * (model.coef_ ** 2).sum()
        self.expect_near(expected, labels, "--l2", "0.01")

    def test_lasso(self):
        model = sklearn.linear_model.Lasso(alpha=0.05).fit(self.rows, self.target)
        expected = ((model.predict(self.rows) - self.target) ** 2).mean() / 2 + 0.05 * abs(model.coef_).sum()
        self.expect_near(expected, self.target, "--model", "lasso", "--l1", "0.05")

    def test_elastic_net(self):
        model = sklearn.linear_model.ElasticNet(alpha=0.1, l1_ratio=0.5).fit(self.rows, self.target)
        expected = (((model.predict(self.rows) - self.target) ** 2).mean() / 2 + 0.05 * abs(model.coef_).sum()
                    + 0.025 * (model.coef_ ** 2).sum())
        self.expect_near(expected, self.target, "--model", "elastic_net", "--l1", "0.05", "--l2", "0.05")

    def test_linear_svm(self):
        labels = numpy.sign(self.target)
        model = sklearn.svm.LinearSVC(C=1 / (400 * 0.05), loss="hinge", tol=1e-8, max_iter=1000000,
                                      intercept_scaling=100).fit(self.rows, labels)
        margins = labels * (self.rows @ model.coef_[0] + model.intercept_[0])
        expected = numpy.maximum(0, 1 - margins).mean() + 0.025 * (model.coef_ ** 2).sum()
        self.expect_near(expected * 1.02, labels, "--model", "hinge", "--l2", "0.05", solvers=("sgd",))


if __name__ == "__main__":
    unittest.main(verbosity=2)
