"""`scripts/bench/instructions.py`: what it reads from callgrind, when it fails, and that a commit equals itself."""

import shutil
from collections import Counter
from pathlib import Path

import instructions
import pytest
import runner

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counted(monkeypatch):
    """Sets the counts: for each side, the instructions per value of each function."""

    def set_counts(*sides):
        row = instructions.Row("waves", "widest", "compress")
        monkeypatch.setattr(instructions, "count_both", lambda *_: [{row: side} for side in sides])

    return set_counts


def test_a_call_is_counted_where_it_arises():
    text = """\
version: 1
events: Ir
fn=main
0 3
cfn=cusz_compress
calls=1 0
0 1000

fn=cusz_compress
0 10
0 5
cob=/lib/libc.so.6
cfn=memcpy
calls=2 0
0 985
0 1

ob=/lib/libc.so.6
fn=memcpy
0 985
totals: 1004
"""
    assert instructions.parse_callgrind(text) == Counter({"memcpy": 985, "cusz_compress": 16, "main": 3})
    assert not instructions.parse_callgrind("events: Ir\nsummary: 0\n")


@pytest.mark.parametrize(
    ("now", "options", "status"),
    [(102, [], 0), (102.5, [], 1), (50, [], 0), (102.5, ["--limit=3"], 0), (100.5, ["--limit=0"], 1)],
)
def test_more_than_the_limit_fails(counted, capsys, now, options, status):
    counted({"a": 60.0, "b": 40.0}, {"a": 60.0, "b": now - 60.0})
    assert instructions.main(options) == status
    shown = capsys.readouterr()
    assert f"| waves | widest | compress | 100.00 | {now:.2f} | {now - 100:+.2f}% |" in shown.out
    assert ("above HEAD: waves, widest, compress" in shown.err) == bool(status)


def test_functions_are_the_largest_of_either_side(counted, capsys):
    counted({"a": 60.0, "b": 40.0, "c": 1.0}, {"b": 40.0, "new": 50.0})
    assert instructions.main(["--functions=1"]) == 0
    functions = [line.split(" | ")[3:] for line in capsys.readouterr().out.splitlines() if "`" in line]
    assert functions == [["`a`", "60.00", "0.00 |"], ["`new`", "0.00", "50.00 |"]]


def test_failures_say_what_to_do(monkeypatch, capsys, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert instructions.main([]) == 2
        assert "Debian: valgrind" in capsys.readouterr().err
    with pytest.raises(runner.Failure, match="git has no library of no-such-commit"):
        instructions.build("no-such-commit", tmp_path)


@pytest.mark.long
def test_a_commit_equals_itself(monkeypatch, capsys, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed (Debian: valgrind)")
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    make = instructions.make_inputs
    monkeypatch.setattr(instructions, "make_inputs", lambda folder: dict(list(make(folder).items())[-1:]))
    assert instructions.main(["HEAD", "HEAD", "--limit=0", "--keep", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(instructions.SETS) * len(instructions.DIRECTIONS)
    assert all(row.endswith("| +0.00% |") for row in rows)
    assert len(list(tmp_path.iterdir())) == 1
