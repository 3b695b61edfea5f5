# 8 DGX A100, 64 GPUs, open division: ADAM, scaled, untested (dgxa100_n8_open)
# 8 nodes x 8 GPUs x 48 samples: 3,072 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_8x8x48x1_open
export DGXNNODES=8
export DGXNGPU=8
export BATCHSIZE=48
export LR=0.00017017148736694844
export OPT_LAMB_BETA_1=0.9625670395797675
export OPT_LAMB_BETA_2=0.965774756527328
export WEIGHT_DECAY_RATE=0.0012497484053551027
export MAX_STEPS=1595
export WARMUP_STEPS=437
export START_WARMUP_STEP=-85
export WALLTIME_MINUTES=20 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
