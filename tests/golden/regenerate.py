#!/usr/bin/env python3
"""Writes the golden archives of the present format version, and says which of them changed.

Run it only when the format changes on purpose; the archives are what every backend is held to.

usage: tests/golden/regenerate.py [--dry-run]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from golden_cases import CASES, digest, folder  # noqa: E402

import cusz_core as cusz  # noqa: E402
import support  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args()

    manifest, changed, target = {}, [], None
    for name, case in CASES.items():
        x = case.make()
        archive = case.compress(x, backend="cpu", threads=1)
        info = cusz.inspect(archive)
        y = cusz.decompress(archive)
        bound = support.absolute_bound(x, case.eb, case.mode, info.fill) if info.kind == "tiled" else 0.0
        broken = support.violations(x, y, bound, info.fill)
        if broken:
            print(f"{name} breaks its bound, nothing is written for it: {broken[0]}", file=sys.stderr)
            return 1
        target = folder(info.version)
        path = target / f"{name}.cusz"
        if not path.exists() or path.read_bytes() != archive:
            changed.append(name)
            if not options.dry_run:
                target.mkdir(exist_ok=True)
                path.write_bytes(archive)
        manifest[name] = {"field": digest(x.tobytes()), "decoded": digest(y.tobytes()), "bytes": len(archive)}

    assert target is not None
    stale = sorted(p.name for p in target.glob("*.cusz") if p.stem not in CASES)
    if not options.dry_run:
        for name in stale:
            (target / name).unlink()
        (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(CASES)} archives, {sum(entry['bytes'] for entry in manifest.values())} bytes, in {target}")
    print(f"changed: {' '.join(changed) or 'none'}; removed: {' '.join(stale) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
