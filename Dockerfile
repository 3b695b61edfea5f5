# An image of bertbench; its entry point is run_and_time.sh.
#   make image                                                                    based on NVIDIA's PyTorch container
#   docker build --target cpu --tag bertbench:cpu --build-arg FROM_IMAGE_NAME=python:3.11-slim-bookworm .
#   docker run --rm bertbench:cpu                                                 the demo
#   docker run --rm --gpus all --ipc=host -v DATA:/data:ro -v RUNS:/runs bertbench dgxa100_n1
# The base image must have Python 3.11 or newer with venv. We keep the packages that it has, above all torch and numpy,
# because NVIDIA's torch has its own cuDNN, NCCL and kernels. We install the rest. PIP_INDEX_URL and the like may be given
# as build arguments. The default base has PyTorch 2.12 for CUDA 13.2. Its digest covers all platforms; a tag can move.
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.05-py3@sha256:222d8b18e671be5c3ef91cb41727a2572a0b23f59ded6c39f373a96946f6f2ba
FROM ${FROM_IMAGE_NAME} AS installed

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG USER_ID=1000

WORKDIR /workspace/bertbench

# The environment comes first, because it changes rarely. The base image's torch stays visible in it.
COPY pyproject.toml constraints.txt ./
COPY benchmarks/bert/launch/requirements.py benchmarks/bert/launch/
RUN python3 -m venv --system-site-packages .venv \
    && .venv/bin/python benchmarks/bert/launch/requirements.py . /tmp \
    && PIP_CONSTRAINT="" .venv/bin/pip install --no-cache-dir --constraint /tmp/constraints.txt \
      --requirement /tmp/requirements.txt

COPY . .
RUN .venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && mkdir -p /data /runs \
    && (getent passwd "${USER_ID}" || useradd --uid "${USER_ID}" --create-home bertbench) \
    && chown "${USER_ID}" /data /runs

# The commit that runs record, because the image has no git. `make image` sets it, with -dirty for uncommitted changes.
ARG COMMIT=""
# PYTHONNOUSERSITE: apptainer shows ~/.local, whose packages would come before those of the image.
ENV BERTBENCH_COMMIT=$COMMIT DATADIR=/data LOGDIR=/runs PATH=/workspace/bertbench/.venv/bin:$PATH PYTHONNOUSERSITE=1
USER ${USER_ID}
# The demo's data come from Python's own documentation. Preparing them takes half a minute, and `docker run` then needs no
# network.
RUN bertbench data prepare --system cpu_demo
ENTRYPOINT ["/workspace/bertbench/run_and_time.sh"]
CMD ["cpu_demo"]

FROM installed AS cpu

FROM installed AS gpu
# NVIDIA's own entry point comes first: it sets up CUDA's compatibility libraries for an older driver.
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "/workspace/bertbench/run_and_time.sh"]
CMD ["cpu_demo"]
