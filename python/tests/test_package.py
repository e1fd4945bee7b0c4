"""What pip makes of the tree."""
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as `make python` does, from the core that CMake has built."""
    pytest.importorskip("pip")
    pytest.importorskip("wheel")
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w"]
    done = subprocess.run([*command, directory, ROOT], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    [made] = directory.glob("tulle-*.whl")
    return made


def test_the_wheel_holds_the_core_the_types_and_the_modules(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tulle/")}
    package = ROOT / "python" / "tulle"
    patterns = ("*.py", "torch/*.py", "*.pyi", "py.typed")
    assert names >= {f"tulle/{path.relative_to(package)}" for pattern in patterns for path in package.glob(pattern)}
    assert any(name.startswith("tulle/_core.") and name.endswith(".so") for name in names)


def test_the_wheel_works_where_it_is_unpacked(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    environment = dict(os.environ, PYTHONPATH=str(tmp_path))
    source = "import tulle; print(tulle.__file__, tulle.__version__, tulle.threads(2, lambda comm: comm.size))"
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=150)
    path, version, sizes = done.stdout.split(" ", 2)
    assert path.startswith(str(tmp_path)) and wheel.name.startswith(f"tulle-{version}-") and sizes == "[2, 2]\n"


def test_the_core_links_neither_torch_nor_mpi(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    [core] = (tmp_path / "tulle").glob("_core.*.so")
    needed = subprocess.run(["ldd", core], capture_output=True, text=True, check=True).stdout
    assert "libtbb" in needed and "torch" not in needed and "libmpi" not in needed
