# Sourced by the scripts beside it: where things are, and how a script speaks.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
LOGS=$ROOT/build/logs
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
        die "'${*:3:3} ...' failed; its whole output is in $log" "$2"
    fi
}

# Lets mpirun start ranks on this machine as root, more of them than cores, unbound, each with one BLAS thread.
mpi_on_one_machine() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none      # Open MPI 4
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none # 5
    export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid it, and Open MPI would warn
    export OPENBLAS_NUM_THREADS=1
}
