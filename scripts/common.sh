# Sourced by the scripts next to it: paths, messages and shared functions.
# shellcheck shell=bash disable=SC2034

if [[ ${1:-} == -h || ${1:-} == --help ]]; then # of the script: the comment that it begins with
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[1]}"
    exit
fi

unset CDPATH # if it is set, cd prints its target and may go elsewhere
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
LOGS=$ROOT/build/logs
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/cusz # shared by all checkouts
mkdir -p "$LOGS"
export PATH=$VENV/bin:$PATH
cd "$ROOT" || exit

say() { printf '\n== %s\n' "$*"; }
die() {
    printf '\nerror: %s\n' "$1" >&2
    (($# < 2)) || printf 'remedy: %s\n' "${@:2}" >&2
    exit 1
}

# logged NAME REMEDY COMMAND...: runs the command with its output in build/logs/NAME.log, shown only if it fails.
logged() {
    local log=$LOGS/$1.log
    if ! "${@:3}" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        die "'${*:3:3} ...' failed; its full output is in $log" "$2"
    fi
}

hash_of() { sha256sum | cut -c 1-12; }

ADIOS2_VERSION=2.12.1
ADIOS2_SDIST=2.12.1.1001 # version on PyPI
ADIOS2_SHA256=f3bf3a6e64b800351a091d4fc70cc8437041c36c81f90f01697b81f168b6adb0

# adios2_sources FOLDER REMEDY: downloads and unpacks the sources of ADIOS2 into FOLDER/adios2-$ADIOS2_SDIST.
adios2_sources() {
    local archive=$1/adios2-$ADIOS2_SDIST.tar.gz
    logged adios2-download "$2" \
        python -m pip download --no-deps --no-binary :all: --no-build-isolation -d "$1" "adios2==$ADIOS2_SDIST"
    echo "$ADIOS2_SHA256  $archive" | sha256sum --check --quiet ||
        die "the download of ADIOS2 is damaged" "Run this again; if you use a mirror, check what it serves."
    tar -xf "$archive" -C "$1"
}

# Lets mpirun start ranks on this machine as root, more of them than cores, unbound, each with one BLAS thread.
mpi_on_one_machine() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none      # Open MPI 4
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none # 5
    export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid it, and Open MPI would warn
    export OPENBLAS_NUM_THREADS=1
}
