"""Find the environment variable that a library refuses: torch reads dozens, some as it is imported."""

import os

_READ_BY_PROGRAMS = (
    "BERTBENCH_", "CUDA_", "GLOO_", "KMP_", "LOGLEVEL", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "TORCH", "TRITON_",
)  # fmt: skip
_FIRST_WORDS = 300  # of an error; TORCH_LOGS lists every name that it knows


def refused_variable(error: BaseException) -> str | None:
    """Return, in a line, which variable of a library's or ours an error is about; None if it names and quotes none."""
    text = str(error)[:_FIRST_WORDS]
    for name, value in sorted(os.environ.items()):
        names_it = name in text
        quotes_it = value != "" and any(
            quoted in text.lower() for quoted in (f"'{value.lower()}'", f'"{value.lower()}"')
        )
        if name.startswith(_READ_BY_PROGRAMS) and (names_it or quotes_it):
            reason = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
            return f"{name} is {value!r}, which is refused ({reason}); correct or unset it"
    return None
