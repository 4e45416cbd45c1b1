"""Without a network, weights that were not downloaded before are given up at once."""

import socket

import pytest

from hypersphere.nn.hub import offline_if_unreachable

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_the_hub_is_left_alone_if_its_name_is_unknown(monkeypatch):
    def unknown(*arguments):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with offline_if_unreachable():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})  # which knows more names
    with offline_if_unreachable():
        assert not constants.HF_HUB_OFFLINE


def test_downloads_go_on_if_its_name_is_known(monkeypatch):
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: asked.append((host, port)) or [()])
    with offline_if_unreachable():
        assert not constants.HF_HUB_OFFLINE
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example:8443")
    with offline_if_unreachable():
        assert not constants.HF_HUB_OFFLINE
    assert asked == [("huggingface.co", "https"), ("mirror.example", 8443)]
