"""scripts/check_release.py: the mistakes that it finds in files. test_wheel.py uses it to install a release."""

from __future__ import annotations

import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support import output

ROOT = Path(__file__).parents[2]
WHEEL = "cusz-1.2.3-cp311-cp311-manylinux_2_34_x86_64.whl"
SDIST = "cusz-1.2.3.tar.gz"
LICENCES = {
    "LICENSE": "The cusz authors",
    "LICENSE.nanobind": "Wenzel Jakob",
    "LICENSE.robin-map": "Thibaut",
    "LICENSE.zstd": "Meta Platforms",
}


def wheel_files() -> dict[str, str]:
    info = "cusz-1.2.3.dist-info"
    licences = {f"{info}/licenses/{name}": f"Copyright {holder}" for name, holder in LICENCES.items()}
    return {f"{info}/METADATA": "Name: cusz\nVersion: 1.2.3\n", **licences}


def sdist_files() -> dict[str, str]:
    files = {
        "PKG-INFO": "Name: cusz\nVersion: 1.2.3\n",
        "CMakeLists.txt": "project(cusz VERSION 1.2.3 LANGUAGES C CXX)\n",
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3 - 2030-01-31\n",
        "CITATION.cff": "type: software\nversion: 1.2.3\n",
        "LICENSE": "",
        "tests/conftest.py": "",
        "tests/golden/test_golden.py": "",
        "scripts/setup": "",
    }
    return {f"cusz-1.2.3/{name}": text for name, text in files.items()}


def write(path: Path, files: dict[str, str]) -> Path:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
    else:
        with tarfile.open(path, "w:gz") as sdist:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                sdist.addfile(member, io.BytesIO(text.encode()))
    return path


def check(*files: Path, ok: bool) -> str:
    said = output(sys.executable, ROOT / "scripts/check_release.py", "--files-only", *files, ok=ok)
    assert ("FAILED" in said) != ok
    return said


def test_files_that_are_right(tmp_path: Path) -> None:
    wheels = [WHEEL, WHEEL.replace("cp311-cp311", "cp313-cp313t")]  # the second for a Python without a GIL
    files = [write(tmp_path / name, wheel_files()) for name in wheels]
    said = check(*files, write(tmp_path / SDIST, sdist_files()), ok=True)
    assert said.splitlines() == [
        *(f"ok      {name}: version 1.2.3, 4 licences" for name in wheels),
        f"ok      {SDIST}: version 1.2.3, 8 files with tests",
    ]


@pytest.mark.parametrize(
    ("name", "changed", "text", "words"),
    [
        (WHEEL, "cusz-1.2.3.dist-info/METADATA", None, "it has no cusz-1.2.3.dist-info/METADATA"),
        (WHEEL, "cusz-1.2.3.dist-info/METADATA", "Version: 1.2.4\n", "metadata have version 1.2.4, its name 1.2.3"),
        (WHEEL, "cusz-1.2.3.dist-info/licenses/LICENSE.zstd", None, "it has no .*LICENSE.zstd"),
        (WHEEL, "cusz-1.2.3.dist-info/licenses/LICENSE", "mine", "LICENSE does not name The cusz authors"),
        (SDIST, "cusz-1.2.3/PKG-INFO", "Version: 1.2.4\n", "metadata have version 1.2.4, its name 1.2.3"),
        (SDIST, "cusz-1.2.3/LICENSE", None, "it has no LICENSE"),
        (SDIST, "cusz-1.2.3/tests/conftest.py", None, "it has no tests/conftest.py"),
        (SDIST, "cusz-1.2.3/CMakeLists.txt", "project(cusz VERSION 1.2.2 L", "CMakeLists.txt has version 1.2.2"),
        (SDIST, "cusz-1.2.3/CHANGELOG.md", "## Unreleased\n", "CHANGELOG.md has no dated section for 1.2.3"),
        (SDIST, "cusz-1.2.3/CITATION.cff", "\nversion: 1.2.2\n", "CITATION.cff is not of 1.2.3"),
        (SDIST, "elsewhere", "", "not all of it is in cusz-1.2.3/"),
    ],
)
def test_what_is_wrong(tmp_path: Path, name: str, changed: str, text: str | None, words: str) -> None:
    files = wheel_files() if name == WHEEL else sdist_files()
    if text is None:
        del files[changed]
    else:
        files[changed] = text
    said = check(write(tmp_path / name, files), ok=False)
    (line,) = said.splitlines()
    assert line.startswith(f"FAILED  {name}: ")
    assert re.search(words, line)


def test_files_of_other_kinds_and_of_several_releases(tmp_path: Path) -> None:
    other = write(tmp_path / "numpy-1.2.3.tar.gz", {})
    assert "numpy-1.2.3.tar.gz: this is neither a wheel of cusz nor its source" in check(other, ok=False)
    assert "No such file" in check(tmp_path / WHEEL, ok=False)
    (tmp_path / SDIST).write_bytes(b"no archive")
    assert f"FAILED  {SDIST}" in check(tmp_path / SDIST, ok=False)
    only_here = write(tmp_path / WHEEL.replace("manylinux_2_34", "linux"), wheel_files())
    assert "let auditwheel repair it" in check(only_here, ok=False)
    files = {name.replace("1.2.3", "1.2.4"): text.replace("1.2.3", "1.2.4") for name, text in sdist_files().items()}
    two = write(tmp_path / WHEEL, wheel_files()), write(tmp_path / "cusz-1.2.4.tar.gz", files)
    assert "the files are of several releases: 1.2.3, 1.2.4" in check(*two, ok=False)
