# 171 DGX A100, 1,368 GPUs, open division: ADAM, the values of the published run of arXiv 2402.02447 with 12 samples per GPU (dgxa100_n171_open)
# 171 nodes x 8 GPUs x 12 samples: 16,416 samples per step
# shellcheck shell=sh
export DGXSYSTEM=DGXA100_171x8x12x1_open
export DGXNNODES=171
export DGXNGPU=8
export BATCHSIZE=12
export LR=0.00039299421615882676
export OPT_LAMB_BETA_1=0.8003575444254268
export OPT_LAMB_BETA_2=0.8174653681457493
export WEIGHT_DECAY_RATE=0.0028861703130042965
export MAX_STEPS=299
export WARMUP_STEPS=82
export START_WARMUP_STEP=-16
export WALLTIME_MINUTES=15 # of a run
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5)) # of the job: export NEXP before you source this file
