"""Planted faults fit the code, and a small one is found."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.tools.planted_faults import PACKAGES, ROOT, Copy, Fault, Result, files_that_reach, find, read_faults, record

FAULTS = read_faults()
TREE = {  # a service in little, with a test of each package
    "compiler/__init__.py": "def least(values):\n    return min(values)\n",
    "decoding/__init__.py": "",
    "app/__init__.py": "import subprocess, sys\n\ndef served():\n"
    "    code = 'import compiler; print(compiler.least([2, 1]))'\n"
    "    return subprocess.check_output([sys.executable, '-c', code], cwd='/')\n",
    "tests/compiler/test_least.py": "from compiler import least\n\ndef test_least():\n    assert least([1, 1]) == 1\n",
    "tests/app/test_served.py": "from app import served\n\ndef test_served():\n    assert served() == b'1\\n'\n",
    "tests/compiler/test_broken.py": "from compiler import least\n\ndef test_broken():\n    assert least([1]) == 2\n",
    "tests/app/test_other.py": "def test_other():\n    assert True\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = ["--import-mode=importlib"]\n',
}
GREATEST = Fault("greatest", "compiler/__init__.py", "min(values)", "max(values)")


def test_each_package_has_20_faults() -> None:
    assert Counter(fault.file.partition("/")[0] for fault in FAULTS) == dict.fromkeys(PACKAGES, 20)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_fits_the_code(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    planted = fault.plant(text)
    assert planted != text
    if fault.file.endswith(".py"):
        compile(planted, fault.file, "exec")
        compile(fault.probe(text), fault.file, "exec")
    assert bool(fault.tests) is not fault.file.endswith(".py")
    assert all((ROOT / folder).is_dir() for folder in fault.tests)


def test_fault_is_found_by_a_test_that_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    tree, results = tmp_path / "tree", tmp_path / "reach.json"
    for name, text in TREE.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    commit = ["-c", "user.name=a", "-c", "user.email=a", "commit", "--quiet", "--message", "All"]
    for arguments in (["init", "--quiet"], ["add", "."], commit):
        subprocess.run(["git", *arguments], cwd=tree, check=True)
    (tmp_path / "recorded").mkdir()
    reach = record(Copy(tree, tmp_path / "recorded"), [GREATEST], ("tests/",), results)
    copy = Copy(tree, tmp_path)
    files = files_that_reach(GREATEST, reach, copy.test_files)
    folders = ["tests/compiler", "tests/compiler", "tests/app"]  # of the last one a child process reaches the fault
    assert [file.rpartition("/")[0] for file in files] == folders
    find(copy, GREATEST, files, result := Result())
    assert result.found_by == "tests/app/test_served.py::test_served"
    assert result.failing_anyway == ["tests/compiler/test_broken.py::test_broken"]
