# 4 DGX A100, 32 GPUs, closed division (dgxa100_n4)
# 4 nodes x 8 GPUs x 48 samples: 1,536 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_4x8x48x1
export DGXNNODES=4
export DGXNGPU=8
export BATCHSIZE=48
export LR=0.002
export OPT_LAMB_BETA_1=0.66
export OPT_LAMB_BETA_2=0.996
export WEIGHT_DECAY_RATE=0.01
export MAX_STEPS=2254
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=25 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
