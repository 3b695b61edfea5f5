# 32 DGX A100, 256 GPUs, closed division
# 32 nodes x 8 GPUs x 18 samples x 1 gradient step: 4,608 samples per step
#
#   source config_DGXA100_32x8x18x1.sh
#   sbatch -N $DGXNNODES -t $WALLTIME run.sub
# You may change values: bertbench uses them, or refuses them by name. This file is the output of
#   bertbench config export dgxa100_n32 --shell
# shellcheck shell=sh

# Machine
export DGXSYSTEM=DGXA100_32x8x18x1
export DGXNNODES=32
export DGXNGPU=8

# Samples per GPU and step, and number of parts that a GPU computes them in
export BATCHSIZE=18
export GRADIENT_STEPS=1

# Optimizer and schedule
export LR=0.0035
export OPT_LAMB_BETA_1=0.62
export OPT_LAMB_BETA_2=0.9
export WEIGHT_DECAY_RATE=0.01
export MAX_STEPS=700
export WARMUP_STEPS=0
export START_WARMUP_STEP=0

# Samples before the first evaluation, between evaluations, and at most
export EVAL_ITER_START_SAMPLES=200000
export EVAL_ITER_SAMPLES=200000
export MAX_SAMPLES_TERMINATION=4500000

# Minutes for a run, and for the job; export NEXP before you source this file. Computed, not measured:
# 2 x 1.6, as `bertbench estimate` expects, plus 10 for initialisation, rounded up to a multiple of 5.
export WALLTIME_MINUTES=15
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5))
