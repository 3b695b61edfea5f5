# 32 DGX A100, 256 GPUs, closed division (dgxa100_n32)
# 32 nodes x 8 GPUs x 18 samples: 4,608 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_32x8x18x1
export DGXNNODES=32
export DGXNGPU=8
export BATCHSIZE=18
export LR=0.0035
export OPT_LAMB_BETA_1=0.62
export OPT_LAMB_BETA_2=0.9
export WEIGHT_DECAY_RATE=0.01
export MAX_STEPS=700
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=15 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
