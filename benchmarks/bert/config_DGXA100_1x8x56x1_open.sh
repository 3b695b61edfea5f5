# one DGX A100, 8 GPUs, open division: ADAM, scaled, untested
# 1 node x 8 GPUs x 56 samples x 1 gradient step: 448 samples per step
#
#   source config_DGXA100_1x8x56x1_open.sh
#   sbatch -N $DGXNNODES -t $WALLTIME run.sub
# Without Slurm, use run_and_time.sh instead of sbatch.
# You may change values: bertbench uses them, or refuses them by name. This file is the output of
#   bertbench config export dgxa100_n1_open --shell
# shellcheck shell=sh

# Machine
export DGXSYSTEM=DGXA100_1x8x56x1_open
export DGXNNODES=1
export DGXNGPU=8

# Samples per GPU and step, and number of parts that a GPU computes them in
export BATCHSIZE=56
export GRADIENT_STEPS=1

# Optimizer and schedule
export LR=6.498531016518857e-05
export OPT_LAMB_BETA_1=0.9945410266053828
export OPT_LAMB_BETA_2=0.9950088186602354
export WEIGHT_DECAY_RATE=0.0004772555555991761
export MAX_STEPS=10935
export WARMUP_STEPS=2999
export START_WARMUP_STEP=-585

# Samples before the first evaluation, between evaluations, and at most
export EVAL_ITER_START_SAMPLES=150000
export EVAL_ITER_SAMPLES=150000
unset MAX_SAMPLES_TERMINATION

# Minutes for a run, and for the job; export NEXP before you source this file. Computed, not measured:
# 2 x 17.1, as `bertbench estimate` expects, plus 10 for initialisation, rounded up to a multiple of 5.
export WALLTIME_MINUTES=45
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5))
