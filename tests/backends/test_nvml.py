import os
from types import SimpleNamespace
from typing import Any

import pytest

from memguard.backends.nvml import DeviceUse, NvmlDevice

PROPERTIES = SimpleNamespace(uuid="aaaa", pci_bus_id=0x81, pci_device_id=0, pci_domain_id=0)


class FakeNvml:
    """A driver with some devices, each known by UUID and PCI address."""

    class NVMLError(Exception):
        """What pynvml raises."""

    def __init__(self, devices: dict[str, dict[str, Any]], broken: tuple[str, ...] = ()) -> None:
        self.devices, self.broken = devices, broken

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):
            raise_it = object.__getattribute__(self, "refuse")
            return raise_it
        return object.__getattribute__(self, name)

    def refuse(self, *_: Any) -> Any:
        raise self.NVMLError("not supported")

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        return self._find("uuid", uuid)

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> dict[str, Any]:
        return self._find("pci", address)

    def _find(self, key: str, value: str) -> dict[str, Any]:
        for device in self.devices.values():
            if device.get(key) == value:
                return device
        raise self.NVMLError("not found")

    def nvmlDeviceIsMigDeviceHandle(self, device: dict[str, Any]) -> bool:
        return device["uuid"].startswith("MIG-")

    def nvmlDeviceGetMigMode(self, device: dict[str, Any]) -> list[int]:
        return [device.get("divided", 0)] * 2

    def nvmlDeviceGetMemoryInfo(self, device: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(used=device["used"], total=device.get("total", 1000), free=0)

    def nvmlDeviceGetComputeRunningProcesses(self, device: dict[str, Any]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.get("compute", ())]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device: dict[str, Any]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.get("graphics", ())]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    """No device is hidden by the surroundings."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def use(devices: dict[str, dict[str, Any]], broken: tuple[str, ...] = ()) -> DeviceUse:
    return NvmlDevice(PROPERTIES, FakeNvml(devices, broken)).read()


def test_the_device_is_found_by_uuid():
    """Of several devices the one with torch's UUID is read."""
    devices = {"first": {"uuid": "GPU-bbbb", "used": 1}, "second": {"uuid": "GPU-aaaa", "used": 500}}
    assert use(devices).used_bytes == 500


def test_the_device_is_found_by_pci_address_where_the_uuid_is_unknown():
    """Older builds of torch tell no UUID that NVML knows."""
    assert use({"only": {"uuid": "GPU-bbbb", "pci": "00000000:81:00.0", "used": 400}}).used_bytes == 400


def test_a_mig_slice_is_read_and_never_its_parent(monkeypatch):
    """Numbers of the whole GPU are not those of a slice: without the slice's handle all is unknown."""
    parent = {"uuid": "GPU-aaaa", "used": 900, "divided": 1}
    assert use({"parent": parent}) == DeviceUse()
    piece = {"uuid": "MIG-cccc", "used": 90}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-cccc")
    assert use({"parent": parent, "slice": piece}).used_bytes == 90


def test_processes_are_told_apart():
    """This process, and others with what the driver tells of them; compute and graphics alike."""
    device = {
        "uuid": "GPU-aaaa",
        "used": 900,
        "compute": [(os.getpid(), 300), (4242, 200)],
        "graphics": [(4242, 250), (99, None)],
    }
    assert use({"only": device}) == DeviceUse(900, 300, ((99, None), (4242, 250)))


def test_in_a_container_that_hides_processes_they_are_unknown():
    """A list without this process cannot be trusted to be other processes."""
    assert use({"only": {"uuid": "GPU-aaaa", "used": 900, "compute": [(4242, 200)]}}) == DeviceUse(900)
    assert use({"only": {"uuid": "GPU-aaaa", "used": 900}}) == DeviceUse(900)


def test_absurd_numbers_are_unknown():
    """More used than there is, as some virtual machines tell, is no number."""
    assert use({"only": {"uuid": "GPU-aaaa", "used": 2**60}}).used_bytes is None


@pytest.mark.parametrize("broken", [("nvmlInit",), ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId")])
def test_a_driver_that_does_not_answer_leaves_all_unknown(broken):
    """No driver, or a device it does not know: unknown, never an error."""
    assert use({"only": {"uuid": "GPU-aaaa", "used": 1}}, broken) == DeviceUse()


@pytest.mark.parametrize(
    "part", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMigMode"]
)
def test_one_question_refused_leaves_the_others(part):
    """What a driver does not support is unknown; the rest is still told."""
    device = {"uuid": "GPU-aaaa", "used": 9, "graphics": [(os.getpid(), 5)], "compute": [(os.getpid(), 5)]}
    answer = use({"only": device}, (part,))
    assert answer.process_bytes == 5
    assert answer.used_bytes == (None if part == "nvmlDeviceGetMemoryInfo" else 9)
