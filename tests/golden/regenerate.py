#!/usr/bin/env python3
"""Writes the golden archives of the frozen format versions that are missing: those of new cases, or of a new version.

Existing archives are frozen, and every backend must reproduce them. If one of them would come out different, nothing
is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from golden_cases import CASES_OF, digest, folder  # noqa: E402

import cusz_core as cusz  # noqa: E402


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    return max(map(regenerate, CASES_OF))


def regenerate(version: int) -> int:
    manifest, archives, changed, target = {}, {}, [], folder(version)
    for name, case in CASES_OF[version].items():
        x, path = case.make(), target / f"{name}.cusz"
        archive = case.compress(x, backend="cpu", threads=1)
        if not path.exists():
            cusz.verify(x, archive)
            archives[path] = archive
        elif case.written and path.read_bytes() != archive:
            changed.append(name)
        else:
            archive = path.read_bytes()
        y = cusz.decompress(archive)
        manifest[name] = {"field": digest(x.tobytes()), "decoded": digest(y.tobytes()), "bytes": len(archive)}

    if changed:
        print(f"not what {target} has, which is frozen: {' '.join(changed)}", file=sys.stderr)
        return 1
    target.mkdir(exist_ok=True)
    for path, archive in archives.items():
        path.write_bytes(archive)
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(manifest)} archives, {sum(entry['bytes'] for entry in manifest.values())} bytes, in {target}")
    print(f"new: {' '.join(path.stem for path in archives) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
