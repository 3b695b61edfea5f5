# one DGX A100, 8 GPUs, open division: ADAM, scaled, untested (dgxa100_n1_open)
# 1 node x 8 GPUs x 56 samples: 448 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_1x8x56x1_open
export DGXNNODES=1
export DGXNGPU=8
export BATCHSIZE=56
export LR=6.498531016518857e-05
export OPT_LAMB_BETA_1=0.9945410266053828
export OPT_LAMB_BETA_2=0.9950088186602354
export WEIGHT_DECAY_RATE=0.0004772555555991761
export MAX_STEPS=10935
export WARMUP_STEPS=2999
export START_WARMUP_STEP=-585
export WALLTIME_MINUTES=60 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
