"""Describe the GPU: clocks, power and throttling as its driver reports them, and cuDNN's descriptor of the device.

With the descriptor, cuDNN 9.8 and later can build execution plans for that GPU on a machine without it (NVIDIA's page
"Deviceless Ahead-of-time Compilation"). The numbers below are cuDNN's own, from cudnn_graph.h.
"""

import ctypes
import subprocess

import torch

from bertbench.common.children import dying_with_us
from lab.bench.gpu.testbed import Row, Unfit

_STATE = ("nvidia-smi", "-q", "-i", "0", "-d", "CLOCK,POWER,PERFORMANCE,TEMPERATURE")
_ANSWER_S = 30.0

_OLDEST_CUDNN = 90_800
_DEVICE_DESCRIPTOR = 38  # CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
_DEVICE_ID = 2700  # CUDNN_ATTR_DEVICEPROP_DEVICE_ID
_AS_JSON = 2702  # CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
_INT32 = 23  # CUDNN_TYPE_INT32
_CHAR = 24  # CUDNN_TYPE_CHAR


def clocks_and_power(when: str) -> Row:
    """Return clocks, power limit, temperature and reasons for throttling, as nvidia-smi prints them.

    Raises Unfit if there is no nvidia-smi.
    """
    try:
        done = subprocess.run(
            _STATE, capture_output=True, text=True, check=True, timeout=_ANSWER_S, preexec_fn=dying_with_us()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unfit(f"nvidia-smi didn't answer: {error}") from error
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    return {"state": when, "nvidia_smi": lines, "holds": True}


def cudnn_device() -> Row:
    """Return cuDNN's descriptor of the first GPU. Raises Unfit if torch has no cuDNN that can write one."""
    version = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    if version is None or version < _OLDEST_CUDNN:
        raise Unfit(f"needs a GPU with cuDNN 9.8 or newer, found {version}")
    torch.cuda.synchronize()  # initializes CUDA on the device
    library = ctypes.CDLL("libcudnn.so.9")  # torch has already loaded it
    return {"cudnn": version, "descriptor": device_descriptor(library, 0), "holds": True}


def device_descriptor(library: ctypes.CDLL, device: int) -> str:
    """Return the descriptor of a device as cuDNN writes it: JSON, which cuDNN reads again only if unchanged."""
    descriptor = ctypes.c_void_p()
    _checked(library.cudnnBackendCreateDescriptor(_DEVICE_DESCRIPTOR, ctypes.byref(descriptor)), "create")
    number = ctypes.c_int32(device)
    one = ctypes.c_int64(1)
    set_attribute = library.cudnnBackendSetAttribute
    _checked(set_attribute(descriptor, _DEVICE_ID, _INT32, one, ctypes.byref(number)), "set its device")
    _checked(library.cudnnBackendFinalize(descriptor), "finalize")
    get_attribute = library.cudnnBackendGetAttribute
    size = ctypes.c_int64()
    nothing = ctypes.c_int64(0)
    _checked(get_attribute(descriptor, _AS_JSON, _CHAR, nothing, ctypes.byref(size), None), "ask for its size")
    text = ctypes.create_string_buffer(size.value)
    _checked(get_attribute(descriptor, _AS_JSON, _CHAR, size, ctypes.byref(size), text), "read")
    _checked(library.cudnnBackendDestroyDescriptor(descriptor), "destroy")
    return text.raw[: size.value].rstrip(b"\0").decode()


def _checked(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"cuDNN's device descriptor: could not {what}, status {status}")
