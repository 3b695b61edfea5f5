# 2 DGX A100, 16 GPUs, closed division (dgxa100_n2)
# 2 nodes x 8 GPUs x 28 samples: 448 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_2x8x28x1
export DGXNNODES=2
export DGXNGPU=8
export BATCHSIZE=28
export LR=0.000425
export OPT_LAMB_BETA_1=0.9
export OPT_LAMB_BETA_2=0.999
export WEIGHT_DECAY_RATE=0.01
export MAX_STEPS=6700
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=30 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
