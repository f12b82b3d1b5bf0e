"""`scripts/bench/gpu_counts.py`: what it adds up, its model, what it shows, and when it fails."""

import json

import commits
import gpu_counts as counts
import pytest
import runner

NAME = "_ZN4cusz4cuda15compress_kernelIfLNS_9TileShapeE3EEvNS0_17CompressArgumentsIT_EE"


def launch(**changes):
    return {
        "kernel": NAME, "grid": [4, 1, 1], "block": [256, 1, 1], "shared_bytes": 42000,
        "threads": {"integer": 300, "float": 20}, "warp_instructions": 10, "shared_accesses": 4, "shared_wavefronts": 6,
        "global_accesses": 3, "sectors_loaded": 9, "sectors_missed": 7, "sectors_stored": 5, "sectors_merged": 3,
        "barriers": 1, "warps": 8, "chain_longest": 90, "chain_sum": 640, **changes,
    }  # fmt: skip


REGISTERS = [
    {"kernel": NAME, "architecture": 90, "registers": 80, "static_shared": 0},
    {"kernel": NAME, "architecture": 80, "registers": 128, "static_shared": 0},
    {"kernel": "_ZN4cusz4cuda11book_kernelE", "architecture": 90, "registers": 32, "static_shared": 0},
]


def kernel(**changes):
    return counts.summed([launch(**changes)], 100, REGISTERS)


def of_row(made, field="waves f32"):
    return {counts.Row(field, "compress", "compress_kernel<float>"): made}


def test_launches_of_a_kernel_are_added_up():
    second = launch(grid=[8, 1, 1], chain_longest=70)
    found = counts.summed([launch(), second], 100, REGISTERS)
    assert (found.blocks, found.block_threads, found.threads, found.warp_instructions) == (8, 256, 640, 20)
    assert (found.wavefronts, found.accesses, found.sectors) == (12, 8, 18)
    assert (found.chain_sum, found.chain_longest, found.warps) == (1280, 90, 16)
    assert found.classes == {"integer": 600, "float": 40}
    assert found.warps_of_processor == {90: 24, 80: 16}  # 3 blocks of 8 warps, and 2
    assert found.active_lanes == 32
    wanted = {"threads": 6.4, "warp instructions": 0.2, "wavefronts": 0.12, "sectors": 0.18, "chain": 12.8}
    assert found.compared == pytest.approx(wanted)


def test_kernels_are_told_apart_by_name_and_type():
    double = launch(kernel=NAME.replace("IfLNS", "IdLNS"))
    found = counts.by_kernel([launch(), double, launch()])
    assert {name: len(launches) for name, launches in found.items()} == {
        "compress_kernel<float>": 2,
        "compress_kernel<double>": 1,
    }


@pytest.mark.parametrize(
    ("which", "changes"),
    [
        ("issue", {"warp_instructions": 10**6}),
        ("shared", {"shared_wavefronts": 10**6}),
        ("memory", {"sectors_missed": 10**6}),
        ("latency", {"chain_sum": 10**8}),
    ],
)
def test_the_longest_limit_binds(which, changes):
    processor = counts.Processor(90, 100, 2.0, 1000)
    made = kernel(**changes)
    all_limits = counts.limits("k", made, processor)
    seconds, binding = counts.modelled("k", made, processor)
    assert binding == which
    assert seconds == all_limits[which] == max(all_limits.values())


def test_what_each_limit_is(monkeypatch):
    monkeypatch.setattr(counts, "MODEL_VALUES", 200)  # twice the field
    processor = counts.Processor(90, 100, 2.0, 1000)  # half a nanosecond a cycle
    assert counts.limits("k", kernel(), processor) == pytest.approx(
        {
            "issue": 2 * 10 / 4 / 100 * 0.5e-9,
            "shared": 2 * 6 / 100 * 0.5e-9,
            "memory": 2 * 9 * 32 / 1e12,
            "latency": 2 * 640 / (100 * 24) * 0.5e-9,
        }
    )
    alone = counts.limits("k", kernel(grid=[1, 1, 1]), processor)  # one block: not more of them for a larger field
    assert alone["issue"] == pytest.approx(10 / 4 * 0.5e-9)
    assert alone["latency"] == pytest.approx(90 * 0.5e-9)
    unknown = counts.Processor(70, 100, 2.0, 1000)
    assert counts.modelled("k", kernel(), unknown) == (float("inf"), "latency")


def test_a_larger_field_is_counted_in_fewer_tiles():
    assert [counts.sample_rate(2**n) for n in (10, 18, 19, 21, 22, 27)] == [1, 1, 2, 8, 16, 16]
    processor = counts.PROCESSORS["H100"]
    made = kernel()._replace(values=2**19)
    plain, sampled = (counts.limits(name, made, processor) for name in ("range_kernel", "count_kernel<float>"))
    assert plain == pytest.approx({name: 8 * seconds for name, seconds in sampled.items()})


@pytest.mark.parametrize(
    ("now", "options", "status"),
    [(1020, [], 0), (1025, [], 1), (500, [], 0), (1025, ["--limit=3"], 0), (1005, ["--limit=0"], 1)],
)
def test_more_than_the_limit_fails(monkeypatch, capsys, now, options, status):
    sides = [of_row(kernel(warp_instructions=n)) for n in (1000, now)]
    monkeypatch.setattr(counts, "count_all", lambda *_: sides)
    assert counts.main(options) == status
    shown = capsys.readouterr()
    assert f"{now / 10 - 100:+.2f}%" in shown.out
    assert ("above HEAD: warp instructions, waves f32, compress, compress_kernel<float>" in shown.err) == bool(status)


def test_kernels_of_one_side_are_shown_and_do_not_fail(monkeypatch, capsys):
    other = {counts.Row("waves f32", "compress", "new_kernel"): kernel()}
    monkeypatch.setattr(counts, "count_all", lambda *_: [of_row(kernel()), other])
    assert counts.main([]) == 0
    out = capsys.readouterr().out
    assert "compress_kernel<float> | gone" in out
    assert "new_kernel | new" in out


def test_kernels_of_a_call_are_added_up(monkeypatch, capsys):
    rows = {
        counts.Row("waves f32", "compress", "book_kernel"): counts.summed(
            [launch(kernel="other", warp_instructions=300)] * 4, 100, REGISTERS
        ),
        **of_row(kernel(warp_instructions=1300)),
        counts.Row("waves f32", "decompress", "decompress_kernel"): kernel(),
    }
    monkeypatch.setattr(counts, "count_all", lambda *_: [rows])
    assert counts.main(["--alone", "abc"]) == 0
    shown = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| waves f32") and "kernel" not in line
    ]
    assert shown[:2] == [
        "| waves f32 | compress | 5 | 16.000 | 25.000 | 0.300 | 0.450 | 32.000 | 16 | 24 |",
        "| waves f32 | decompress | 1 | 3.200 | 0.100 | 0.060 | 0.090 | 6.400 | 16 | 24 |",
    ]


def test_a_small_field_takes_launches_and_chains():
    launches = [launch(chain_longest=n) for n in (1_980_000, 990_000)]
    twice = counts.summed(launches, 100, REGISTERS)
    assert twice.longest_chains == 2_970_000
    rows = {
        **of_row(kernel(), counts.SMALL),
        **of_row(twice, counts.ONE_TILE),
        counts.Row(counts.SMALL, "decompress", "start_kernel"): twice,
    }
    compress, decompress = counts.small_table(rows).splitlines()[2:]
    assert compress.startswith("| compress | 1 | 2970000 | ")
    assert compress.split(" | ")[4] == "1502 to 1504 us"  # an H100
    assert decompress.startswith("| decompress | 2 | 0 | ")


def test_blocks_that_need_more_memory_than_a_processor_has():
    assert kernel(shared_bytes=200_000).warps_of_processor == {90: 8}


def test_a_count_that_was_nothing():
    assert commits.change(0, 0) == 0
    assert commits.change(0, 1) == float("inf")


def test_tables_and_files(monkeypatch, capsys, tmp_path):
    made = of_row(kernel())
    monkeypatch.setattr(counts, "count_all", lambda *_: [made])
    path = tmp_path / "new/counts.json"
    assert counts.main(["--alone", "abc", f"--json={path}"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "compress_kernel<float> |" in line)
    assert row.endswith("| 3.20 | 32.0 | 0.060 | 1.50 | 0.090 | 6.40 | 90 | 16 | 24 |")
    assert "GB/s: compress_kernel<float>" in out
    (written,) = json.loads(path.read_text())["rows"]
    assert (written["field"], written["kernel"]) == ("waves f32", "compress_kernel<float>")
    assert (written["threads"], written["warps"]) == (320, 8)


def test_lines_of_the_source(monkeypatch, capsys):
    ptx = """\
.visible .entry k()
{
	.loc	1 48 0
	add.u32 %r1, %r2, 3;
	.loc	2 27 9, function_name $L__info_string0, inlined_at 1 54 5
	add.u32 %r1, %r1, 3;
	ret;
}
	.file	1 "/somewhere/cuda/kernels.cu"
	.file	2 "/somewhere/cuda/tile.cuh"
"""
    sources = counts.source_lines(ptx)
    assert sources == ["?"] * 2 + ["kernels.cu:48"] * 2 + ["tile.cuh:27"] * 6
    other = ptx.replace("kernels.cu", "logarithms.cu").replace("tile.cuh", "block.cuh")
    of_two_files = counts.source_lines(f".version 9.0\n{ptx}.version 9.0\n{other}")
    assert of_two_files[3] == "kernels.cu:48"
    assert of_two_files[3 + len(sources) + 1] == "logarithms.cu:48"
    assert len(of_two_files) == 2 * (len(sources) + 1)
    lines = counts.by_source({4: 100, 6: 300, 7: 20}, sources)
    assert lines == {"kernels.cu:48": 100, "tile.cuh:27": 320}
    monkeypatch.setattr(counts, "count_all", lambda *_: [of_row(kernel()._replace(lines=lines))])
    assert counts.main(["--alone", "--lines=1"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "`" in line]
    assert shown == ["| waves f32 | compress | compress_kernel<float> | `tile.cuh:27` | 3.20 |"]


def test_failures_say_what_to_do(monkeypatch, capsys):
    def fail(*_):
        raise runner.Failure("nvcc was not found")

    monkeypatch.setattr(counts, "count_all", fail)
    assert counts.main([]) == 2
    assert "nvcc was not found" in capsys.readouterr().err


def test_a_kernel_that_fits_no_multiprocessor_as_it_was_counted():
    made = kernel()._replace(warps_of_processor={90: 8})
    table = counts.times_table(of_row(made))
    assert table.count("does not fit as it was counted") == 1  # an A100
    assert table.count(" GB/s: ") == 2
