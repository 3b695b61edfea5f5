# 8 DGX A100, 64 GPUs, closed division (dgxa100_n8)
# 8 nodes x 8 GPUs x 48 samples: 3,072 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_8x8x48x1
export DGXNNODES=8
export DGXNGPU=8
export BATCHSIZE=48
export LR=0.0020992
export OPT_LAMB_BETA_1=0.60466
export OPT_LAMB_BETA_2=0.85437
export WEIGHT_DECAY_RATE=0.1
export MAX_STEPS=1059
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=15 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
