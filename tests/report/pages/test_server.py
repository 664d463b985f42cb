from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager

import pytest

from crosstack.errors import InputError
from crosstack.report.pages.server import LOOPBACK, StudyServer


@contextmanager
def serving(store):
    with StudyServer(store) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path="/", method="GET", **headers):
    """Return status, headers and body of an answer."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=120)
    try:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_it_listens_on_this_machine_alone(swept):
    with serving(swept("N7")) as server:
        assert server.server_address[0] == LOOPBACK == "127.0.0.1"
        assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"


def test_it_serves_the_page_and_its_points(swept):
    with serving(swept("N7")) as server:
        status, headers, body = ask(server)
        assert status == 200
        assert headers["Content-Type"].startswith("text/html")
        assert b"connect-src 'self'" in body
        status, _, data = ask(server, "/data.json")
        assert (status, json.loads(data)["points"]) == (200, 5)


def test_an_unchanged_store_is_answered_without_its_points(swept):
    store = swept("N7")
    with serving(store) as server:
        tag = ask(server, "/data.json")[1]["ETag"]
        again = ask(server, "/data.json", If_None_Match=tag)
        assert (again[0], again[2]) == (304, b"")
        swept("N7", "N5")
        status, headers, data = ask(server, "/data.json", If_None_Match=tag)
        assert (status, json.loads(data)["points"]) == (200, 10)
        assert headers["ETag"] != tag


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}"]
)
def test_other_names_are_refused(swept, host):
    with serving(swept("N7")) as server:
        status, _, body = ask(server, Host=host.format(port=server.server_address[1]))
        assert (status, body) == (403, b"only for this machine\n")


@pytest.mark.parametrize(
    "path",
    [
        "/../chips.yaml",
        "/%2e%2e/chips.yaml",
        "//chips.store/store.sqlite",
        "/store.sqlite",
        "/data.json/",
    ],
)
def test_no_part_of_a_request_names_a_file(swept, path):
    with serving(swept("N7")) as server:
        assert ask(server, path)[0] == 404


@pytest.mark.parametrize("address", ["http://[::1/", "http://[/"])
def test_half_an_address_is_a_bad_request(swept, address):
    with serving(swept("N7")) as server:
        port = server.server_address[1]
        request = f"GET {address} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n\r\n"
        with socket.create_connection((LOOPBACK, port), 20) as connection:
            connection.sendall(request.encode())
            assert connection.recv(100).split()[1] == b"400"


def test_a_store_that_is_gone_is_said_and_looked_for_again(swept):
    store = swept("N7")
    with serving(store) as server:
        away = store.rename(store.with_name("away"))
        assert ask(server)[0] == 503
        away.rename(store)
        assert ask(server)[0] == 200


def test_it_answers_nothing_but_reading(swept):
    with serving(swept("N7")) as server:
        assert ask(server, method="POST")[0] == 501
        status, headers, body = ask(server, method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 10_000


def test_a_port_that_is_taken_is_named(swept):
    store = swept("N7")
    with StudyServer(store) as server:
        port = server.server_address[1]
        with pytest.raises(InputError, match=f"port: {port} cannot be used"):
            StudyServer(store, port)


def test_bad_ports_and_stores_are_refused(swept, tmp_path):
    with pytest.raises(InputError, match="port: got 70000"):
        StudyServer(swept("N7"), 70_000)
    with pytest.raises(InputError):
        StudyServer(tmp_path / "nothing")
