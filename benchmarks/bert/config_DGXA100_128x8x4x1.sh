# 128 DGX A100, 1,024 GPUs, closed division (dgxa100_n128)
# 128 nodes x 8 GPUs x 4 samples: 4,096 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_128x8x4x1
export DGXNNODES=128
export DGXNGPU=8
export BATCHSIZE=4
export LR=0.00255
export OPT_LAMB_BETA_1=0.71
export OPT_LAMB_BETA_2=0.88
export WEIGHT_DECAY_RATE=0.0166629
export MAX_STEPS=820
export WARMUP_STEPS=256
export START_WARMUP_STEP=-76
export WALLTIME_MINUTES=15 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
