# 171 DGX A100, 1,368 GPUs, open division: ADAM, the published run of arXiv 2402.02447 with 12 samples per GPU
# 171 nodes x 8 GPUs x 12 samples x 1 gradient step: 16,416 samples per step
#
#   source config_DGXA100_171x8x12x1_open.sh
#   sbatch -N $DGXNNODES -t $WALLTIME run.sub
# You may change values: bertbench uses them, or refuses them by name. This file is the output of
#   bertbench config export dgxa100_n171_open --shell
# shellcheck shell=sh

# Machine
export DGXSYSTEM=DGXA100_171x8x12x1_open
export DGXNNODES=171
export DGXNGPU=8

# Samples per GPU and step, and number of parts that a GPU computes them in
export BATCHSIZE=12
export GRADIENT_STEPS=1

# Optimizer and schedule
export LR=0.00039299421615882676
export OPT_LAMB_BETA_1=0.8003575444254268
export OPT_LAMB_BETA_2=0.8174653681457493
export WEIGHT_DECAY_RATE=0.0028861703130042965
export MAX_STEPS=299
export WARMUP_STEPS=82
export START_WARMUP_STEP=-16

# Samples before the first evaluation, between evaluations, and at most
export EVAL_ITER_START_SAMPLES=325000
export EVAL_ITER_SAMPLES=325000
unset MAX_SAMPLES_TERMINATION

# Minutes for a run, and for the job; export NEXP before you source this file. Computed, not measured:
# 2 x 0.4, as `bertbench estimate` expects, plus 10 for initialisation, rounded up to a multiple of 5.
export WALLTIME_MINUTES=15
export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5))
