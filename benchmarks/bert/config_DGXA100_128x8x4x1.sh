# 128 DGX A100, 1,024 GPUs, closed division
# 128 nodes x 8 GPUs x 4 samples x 1 gradient step: 4,096 samples per step
#
#   source config_DGXA100_128x8x4x1.sh
#   sbatch -N $DGXNNODES -t $WALLTIME run.sub
# You may change values: bertbench uses them, or refuses them by name. This file is the output of
#   bertbench config export dgxa100_n128 --shell
# shellcheck shell=sh

# Machine
export DGXSYSTEM=DGXA100_128x8x4x1
export DGXNNODES=128
export DGXNGPU=8

# Samples per GPU and step, and number of parts that a GPU computes them in
export BATCHSIZE=4
export GRADIENT_STEPS=1

# Optimizer and schedule
export LR=0.00255
export OPT_LAMB_BETA_1=0.71
export OPT_LAMB_BETA_2=0.88
export WEIGHT_DECAY_RATE=0.0166629
export MAX_STEPS=820
export WARMUP_STEPS=256
export START_WARMUP_STEP=-76

# Samples before the first evaluation, between evaluations, and at most
export EVAL_ITER_START_SAMPLES=175000
export EVAL_ITER_SAMPLES=175000
export MAX_SAMPLES_TERMINATION=7000000

# Minutes for a run, and for the job; export NEXP before you source this file. Computed, not measured:
# 2 x 0.4, as `bertbench estimate` expects, plus 10 for initialisation, rounded up to a multiple of 5.
export WALLTIME_MINUTES=15
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5))
