# Sourced by the job scripts next to it: settings to adapt to a cluster, and how ranks are started.
# shellcheck shell=bash

# ---- adapt

# module purge
# module load gcc openmpi                 # the ones that scripts/setup was run with
CUSZ_LAUNCH=${CUSZ_LAUNCH:-srun}          # or mpirun
CUSZ_SRUN_MPI=${CUSZ_SRUN_MPI:-pmix}      # one of `srun --mpi=list`: pmix for Open MPI, pmi2 for MPICH

# ---- no need to change anything below

# shellcheck source=/dev/null
source "${CUSZ_VENV:-$CUSZ_ROOT/.venv}/bin/activate"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not inherit it from sbatch
# Otherwise srun's ranks leave MPI_Init before other nodes are ready, and Open MPI may crash (docs/guides/slurm.md).
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
# In a job submitted with --export=NONE, srun would otherwise not pass the variables exported here to the ranks.
export SLURM_EXPORT_ENV=ALL
# Some clusters set it only where --ntasks is given.
if [[ -z ${SLURM_NTASKS:-} && -n ${SLURM_NTASKS_PER_NODE:-} ]]; then
    SLURM_NTASKS=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))
fi

# Where the job's files go. A requeued job finds its earlier files there.
out=${CUSZ_OUT:-$SLURM_SUBMIT_DIR/$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}
mkdir -p "$out"

# launch RANKS COMMAND...: runs COMMAND on RANKS ranks of the job, and fails if one of them fails.
side_by_side=() # options of srun for steps that run at the same time
launch() { # "${a[@]}" of an empty array is an error before bash 4.4: hence ${a[@]+...}
    local ranks=$1
    shift
    case $CUSZ_LAUNCH in
    srun) srun --mpi="$CUSZ_SRUN_MPI" --kill-on-bad-exit=1 ${side_by_side[@]+"${side_by_side[@]}"} --ntasks="$ranks" "$@" ;;
    # Open MPI starts its daemons with srun; without this, a second mpirun would wait for the first to end.
    mpirun) SLURM_OVERLAP=1 mpirun --bind-to none -n "$ranks" "$@" ;;
    *) echo "CUSZ_LAUNCH is $CUSZ_LAUNCH; it must be srun or mpirun" >&2 && return 2 ;;
    esac
}
