"""Builds the programs of gpu_peers.py from checkouts of the peers, with nvcc and ninja. Their code is not kept here.

Folders are named as by git clone: cuSZ, cuSZp, FSZ, FZ-GPU, PFPL. They are compiled unchanged, by nvcc 13.0 or newer,
from a copy of the needed files. Options are those of the peers' own build files, for this GPU's architecture.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runner import Failure

ADAPTERS = Path(__file__).with_name("gpu_peers")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a peer is built.

    Attributes:
        name: of its folder.
        repository, commit: the version that was tried; `digest`: of the needed files, by `digest_of`.
        needed: its folders and files that are compiled or included.
        programs: their names, each with its sources: of the peer, or of gpu_peers/ (an adapter, linked with main.cpp).
        includes: its folders to search for headers; or others, by absolute path.
        options: for nvcc.
        library: programs are linked with it, and find it when they run.
    """

    name: str
    repository: str
    commit: str
    digest: str
    needed: tuple[str, ...]
    programs: dict[str, tuple[str, ...]]
    includes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    library: Path | None = None


CUSZ = Recipe(
    name="cuSZ",
    repository="https://github.com/szcompressor/cuSZ",
    commit="d3cde38aec71a3ae2a7f80eef7707a27b3bc3d1d",
    digest="b8f845f2ca593221",
    needed=("portable/include", "psz/include", "psz/src", "codec/hf/include", "codec/hf/src", "codec/fzg/include",
            "codec/fzg/src"),
    programs={
        "cusz": (
            "cusz.cpp",
            *(f"codec/hf/src/{name}" for name in (
                "hf_bk.seq.cc", "hf_bk_impl1.seq.cc", "hf_bk_impl2.seq.cc", "hf_bk_internal.seq.cc", "hf_buf.cc",
                "hf_canon.seq.cc", "hf_est.cc", "hf_hl.cc", "hf_kernels.cu", "libphf.cc")),
            *(f"codec/fzg/src/{name}" for name in ("fzg_hl.cc", "fzg_kernel.cu", "fzg_buf.cc")),
            *(f"psz/src/kernel/{name}.cu" for name in (
                "hist_generic", "histsp", "proto_lrz_c", "proto_lrz_x", "spvn", "lrz_c", "lrz_x", "spline3")),
            *(f"psz/src/stat/extrema/{name}.cu" for name in ("f4", "f8")),
            "psz/src/stat/compare.stl.cc", "psz/src/mem/buf_comp.cc", "psz/src/utils/context.cc",
            "psz/src/utils/header.c", "psz/src/compressor.cc", "psz/src/libcusz.cc",
        ),
    },
    includes=("portable/include", "psz/include", "psz/src", "codec/hf/include", "codec/fzg/include"),
    options=("--extended-lambda", "--expt-relaxed-constexpr", "-DPSZ_USE_CUDA", "-D_PORTABLE_USE_CUDA",
             "-DPHF_USE_CUDA"),
)  # fmt: skip

CUSZP = Recipe(
    name="cuSZp",
    repository="https://github.com/szcompressor/cuSZp",
    commit="6ab90a55dfb47da95c4d23b1bea0013e3f8f73ce",
    digest="1668a5874e9ba417",
    needed=("include", "src"),
    programs={
        "cuszp": (
            *("cuszp.cpp", "src/cuSZp.cu"),
            *(f"src/cuSZp_{part}_{kind}.cu" for part in ("kernels", "entry") for kind in (
                "1D_f32", "1D_f64", "2D_f32", "2D_f64", "3D_f32", "3D_f64")),
        ),
    },
    includes=("include", "include/cuSZp"),
)  # fmt: skip

FSZ = Recipe(
    name="FSZ",
    repository="https://github.com/JiajunHuang1999/FSZ",
    commit="e6363645b5881b90b2dae174e9b4bb4e97c600b9",
    digest="0330c27c228eb122",
    needed=("include", "src"),
    programs={"fsz": ("fsz.cpp", "src/fsz.cu")},
    includes=("include", "src"),
)

FZ_GPU = Recipe(
    name="FZ-GPU",
    repository="https://github.com/szcompressor/FZ-GPU",
    commit="e8ec990eeb9d8b6cfabf98e572bac760ae50e7f1",
    digest="efbac6741f3af36a",
    needed=("include", "src/fz.cu"),
    programs={"fzgpu": ("fzgpu.cu",)},
    includes=(".",),
)

PFPL = Recipe(
    name="PFPL",
    repository="https://github.com/burtscher/PFPL",
    commit="36f5aaef42744ed78b4d1525b03a7fb2168b363c",
    digest="9fbce8df1e06a577",
    needed=("src/include", "src/components",
            *(f"src/{t}_abs_{way}_gpu.cu" for t in ("f32", "f64") for way in ("comp", "decomp"))),
    programs={f"pfpl_{t}_{way}": (f"src/{t}_abs_{way}_gpu.cu",) for t in ("f32", "f64") for way in ("comp", "decomp")},
    includes=("src",),
    options=("-fmad=false", "-Xcompiler", "-ffp-contract=off"),
)  # fmt: skip

RECIPES = {recipe.name: recipe for recipe in (CUSZ, CUSZP, FSZ, FZ_GPU, PFPL)}


def own_recipe(headers: Path, library: Path) -> Recipe:
    """This project's engine, measured as the peers are."""
    return Recipe("cusz_core", "", "", "", (), {"ours": ("ours.cpp",)}, includes=(str(headers),), library=library)


#: Allocations of an adapter's program go to main.cpp.
WRAPPED = tuple(f"-Xlinker --wrap={name}" for name in ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost"))


# ---------------------------------------------------------------------------------------------------------- sources


def files_of(recipe: Recipe, folder: Path) -> Iterator[Path]:
    """The files that are needed, relative to the peer's folder, in order."""
    for name in recipe.needed:
        path = folder / name
        if not path.exists():
            raise Failure(f"{path} is missing: {folder} is no checkout of {recipe.repository}")
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        yield from (p.relative_to(folder) for p in found)


def digest_of(recipe: Recipe, folder: Path) -> str:
    """The first 16 digits of the SHA-256 of the names and contents of the needed files."""
    whole = hashlib.sha256()
    for name in files_of(recipe, folder):
        whole.update(f"{name.as_posix()}\0".encode() + hashlib.sha256((folder / name).read_bytes()).digest())
    return whole.hexdigest()[:16]


def version_of(recipe: Recipe, folder: Path) -> str:
    """The commit that was tried, if these are its sources; else a description of them."""
    digest = digest_of(recipe, folder)
    return recipe.commit[:12] if digest == recipe.digest else f"sources {digest}"


def copy_needed(recipe: Recipe, folder: Path, target: Path) -> None:
    """Copies the needed files of a peer. Unchanged files are not copied, so that they are not compiled again."""
    for name in files_of(recipe, folder):
        content = (folder / name).read_bytes()
        copy = target / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


# ------------------------------------------------------------------------------------------------------------ build


def ninja_file(recipes: Sequence[Recipe], build: Path, nvcc: str, architecture: str) -> str:
    """The ninja file for all programs; sources lie in build/NAME/source."""
    lines = [
        "ninja_required_version = 1.5",
        f"nvcc = {escaped(nvcc)} -O3 -std=c++17 -w -arch=sm_{architecture}",
        "rule compile",
        "  command = $nvcc $options -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  description = compiling $in",
        "rule link",
        "  command = $nvcc $in $options -o $out",
        "  description = linking $out",
    ]
    for recipe in recipes:
        own = build / recipe.name
        options = [*recipe.options, *(f"-I{escaped(own / 'source' / name)}" for name in recipe.includes)]
        objects: dict[str, Path] = {}
        for program, sources in recipe.programs.items():
            adapted = (ADAPTERS / sources[0]).is_file()
            all_sources = (*sources, "main.cpp") if adapted else sources
            for source in all_sources:
                at = ADAPTERS / source if (ADAPTERS / source).is_file() else own / "source" / source
                if source not in objects:
                    objects[source] = own / "objects" / f"{source}.o"
                    lines += [
                        f"build {escaped(objects[source])}: compile {escaped(at)}",
                        f"  options = {' '.join([*options, f'-I{escaped(ADAPTERS)}'])}",
                    ]
            inputs = " ".join(escaped(objects[source]) for source in all_sources)
            link = list(WRAPPED) if adapted else []
            if recipe.library is not None:
                place = escaped(recipe.library.parent)
                link = [f"-L{place} -l:{recipe.library.name} -Xlinker -rpath={place}", *link]
                inputs += f" | {escaped(recipe.library)}"
            lines += [f"build {escaped(own / program)}: link {inputs}", f"  options = {' '.join(link)}"]
        lines.append(f"build {recipe.name}: phony {' '.join(escaped(own / p) for p in recipe.programs)}")
    return "\n".join([*lines, f"default {' '.join(recipe.name for recipe in recipes)}", ""])


def escaped(path: Path | str) -> str:
    text = str(path)
    if any(c in text for c in "\n\"'"):
        raise Failure(f"{text} has characters that cannot be in a path here")
    return "".join(f"${c}" if c in " :$" else c for c in text)


def build(recipes: Sequence[Recipe], peers: Path, folder: Path, architecture: str, jobs: int) -> dict[str, str]:
    """Builds what can be built. Returns the names that failed, with the end of the compiler's output."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    ninja = shutil.which("ninja")
    for program, found in (("nvcc", nvcc), ("ninja", ninja)):
        if found is None:
            raise Failure(f"{program} was not found")
    assert nvcc is not None
    assert ninja is not None
    for recipe in recipes:
        copy_needed(recipe, peers / recipe.name, folder / recipe.name / "source")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.ninja").write_text(ninja_file(recipes, folder, nvcc, architecture))
    failed: dict[str, str] = {}
    command = [ninja, "-C", str(folder), "-k", "0", "-j", str(jobs)]
    everything = subprocess.run(command, capture_output=True, text=True, check=False)
    if everything.returncode == 0:
        return failed
    for recipe in recipes:  # find out which of them failed
        done = subprocess.run([*command, recipe.name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failed[recipe.name] = (done.stdout + done.stderr)[-3000:]
    return failed


def sources_list(recipes: Iterable[Recipe]) -> str:
    """Where the peers come from, and the commits that were tried."""
    return "\n".join(f"    {recipe.name:7} {recipe.repository} {recipe.commit[:12]}" for recipe in recipes)
