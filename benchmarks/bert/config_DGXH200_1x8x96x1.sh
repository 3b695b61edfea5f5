# one DGX H200, 8 GPUs, closed division (dgxh200_n1)
# 1 node x 8 GPUs x 96 samples: 768 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXH200_1x8x96x1
export DGXNNODES=1
export DGXNGPU=8
export BATCHSIZE=96
export LR=0.00096
export OPT_LAMB_BETA_1=0.60466
export OPT_LAMB_BETA_2=0.85437
export WEIGHT_DECAY_RATE=0.1
export MAX_STEPS=3680
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=20 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
