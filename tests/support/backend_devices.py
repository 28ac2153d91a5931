"""Where the array code can run: the devices that the tests go through."""

import pytest

from plml.backend.arrays import check_device


def _skip(device):
    try:
        check_device(device)
    except ValueError as error:
        return [pytest.mark.skip(reason=str(error))]
    return []


#: NumPy, PyTorch on the processor, PyTorch on a GPU.
DEVICES = [pytest.param(device, marks=_skip(device)) for device in ("cpu", "torch", "cuda")]
