# one DGX A100, 8 GPUs, closed division (dgxa100_n1)
# 1 node x 8 GPUs x 56 samples: 448 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_1x8x56x1
export DGXNNODES=1
export DGXNGPU=8
export BATCHSIZE=56
export LR=0.000425
export OPT_LAMB_BETA_1=0.9
export OPT_LAMB_BETA_2=0.999
export WEIGHT_DECAY_RATE=0.01
export MAX_STEPS=6700
export WARMUP_STEPS=0
export START_WARMUP_STEP=0
export WALLTIME_MINUTES=45 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
