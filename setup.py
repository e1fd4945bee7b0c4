"""Builds the wheel: CMake makes tulle._core, everything else is pyproject.toml's.

TULLE_BUILD_DIRECTORY names a build directory of CMake's that exists, to use what it has built; else there is a new one.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
SCRATCH = ROOT / "build" / "wheel"


def version() -> str:
    return re.search(r"project\(tulle VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def pybind11_option() -> list[str]:
    """Where a pybind11 of PyPI is; CMake finds the system's by itself."""
    try:
        import pybind11
    except ImportError:
        return []
    return [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]


def configure(directory: pathlib.Path) -> None:
    off = [f"-DTULLE_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "CLI", "SHARED")]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", directory, *generator, *off, *pybind11_option(), "-DCMAKE_BUILD_TYPE=Release",
         "-DTULLE_MPI=off", "-DTULLE_PYTHON=on", f"-DPython_EXECUTABLE={sys.executable}"],
        check=True,
    )  # fmt: skip


class BuildCore(build_ext):
    def build_extension(self, extension: Extension) -> None:
        given = os.environ.get("TULLE_BUILD_DIRECTORY")
        directory = pathlib.Path(given).resolve() if given else SCRATCH / "cmake"
        if not given:
            configure(directory)
        jobs = str(self.parallel or os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", directory, "--target", "tulle_python", "--parallel", jobs], check=True)
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(directory / "python" / "tulle" / target.name, target)


SCRATCH.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    ext_modules=[Extension("tulle._core", [])],
    cmdclass={"build_ext": BuildCore},
    options={"build": {"build_base": str(SCRATCH / "lib")}, "egg_info": {"egg_base": str(SCRATCH)}},
)
