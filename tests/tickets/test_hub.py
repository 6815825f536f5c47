"""Tickets on a hub, which here is a server of this process that speaks as much of its protocol as is needed."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from search_samples import graph, search
from ticket_samples import random_ticket

from aceglt import Ticket
from aceglt.errors import ConfigError, TicketError

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """Repositories of files in memory, as `files` of the server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        files: dict[str, bytes] = self.server.files  # type: ignore[attr-defined]
        if self.path.endswith("/preupload/main"):
            wanted = [entry["path"] for entry in json.loads(body)["files"]]
            answer = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in wanted]
            self._answer({"files": answer})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._answer({"commitUrl": f"{self.path}/{COMMIT}", "commitOid": COMMIT})
        else:
            self._answer({"url": f"http://{self.headers['Host']}/me/mine", "name": "me/mine"})

    def do_HEAD(self) -> None:
        self._file(send=False)

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self._answer({"id": "me/mine", "sha": COMMIT, "siblings": []})
        else:
            self._file(send=True)

    def _file(self, send: bool) -> None:
        content = self.server.files.get(self.path.rpartition("/")[2])  # type: ignore[attr-defined]
        self.send_response(404 if content is None else 200)
        content = content or b""
        for name, value in (("ETag", f'"{len(content)}"'), ("X-Repo-Commit", COMMIT), ("Content-Length", len(content))):
            self.send_header(name, str(value))
        self.end_headers()
        if send:
            self.wfile.write(content)

    def _answer(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {}  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_ticket_comes_back_from_a_hub_with_its_card(hub: ThreadingHTTPServer) -> None:
    result = search(tickets="all")
    ticket, where = result.tickets[-1], f"http://127.0.0.1:{hub.server_port}"
    ticket.push_to_hub("me/mine", results=result.results, token="hf_secret", endpoint=where)
    files: dict[str, bytes] = hub.files  # type: ignore[attr-defined]
    assert set(files) == {"README.md", "ticket.safetensors"}
    assert Ticket.from_pretrained("me/mine", endpoint=where, token="hf_secret") == ticket
    card = files["README.md"].decode()
    assert 'Ticket.from_pretrained("me/mine")' in card
    assert "accuracy, test, 2 seeds" in card
    assert f"| weights | {ticket.masks.alive.weights} | {ticket.total.weights} |" in card
    assert "hf_secret" not in card


def test_what_is_pushed_names_no_folder_of_the_machine(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    ticket = random_ticket()
    ticket = replace(ticket, config=ticket.config.replace(dataset=str(tmp_path / "mine.npz")))
    ticket.push_to_hub("me/mine", token="hf_secret", endpoint=f"http://127.0.0.1:{hub.server_port}")
    files: dict[str, bytes] = hub.files  # type: ignore[attr-defined]
    assert not any(str(tmp_path).encode() in content for content in files.values())
    assert all(b"mine.npz" in content for content in files.values())


def test_what_is_not_there_is_one_line(hub: ThreadingHTTPServer) -> None:
    with pytest.raises(TicketError, match=r"^me/mine: no ticket there \([^\n]*\)$"):
        Ticket.from_pretrained("me/mine", endpoint=f"http://127.0.0.1:{hub.server_port}", token="hf_secret")


def test_a_hub_that_cannot_be_reached_is_asked_once(hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise AssertionError("it was asked again")

    monkeypatch.setattr(time, "sleep", sleep)
    ticket, where = random_ticket(), f"http://127.0.0.1:{hub.server_port}"
    ticket.push_to_hub("me/mine", token="hf_secret", endpoint=where)
    Ticket.from_pretrained("me/mine", endpoint=where, token="hf_secret")
    nowhere = "http://127.0.0.1:9"  # a port at which nobody answers
    assert Ticket.from_pretrained("me/mine", endpoint=nowhere, token="hf_secret") == ticket  # as it was downloaded
    with pytest.raises(TicketError, match="me/other: no ticket there"):
        Ticket.from_pretrained("me/other", endpoint=nowhere, token="hf_secret")


def test_a_hub_library_whose_question_has_no_endpoint_downloads_too(
    hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = huggingface_hub.get_hf_file_metadata

    def of_an_earlier_version(url: str, token: Any = None) -> Any:
        return asked(url, token=token)

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", of_an_earlier_version)
    ticket, where = random_ticket(), f"http://127.0.0.1:{hub.server_port}"
    ticket.push_to_hub("me/mine", token="hf_secret", endpoint=where)
    assert Ticket.from_pretrained("me/mine", endpoint=where, token="hf_secret") == ticket


@pytest.mark.parametrize("name", ["zoo/missing/deep", "/nowhere", "missing", "./missing/there"])
def test_a_folder_that_is_missing_is_not_looked_for_on_a_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TicketError, match="there is no such folder"):
        Ticket.from_pretrained(name)


def test_a_run_in_place_of_a_ticket_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").touch()
    with pytest.raises(TicketError, match=r"run is a run; aceglt\.load_run reads it, and Ticket\.load a file in run"):
        Ticket.from_pretrained("run")
    with pytest.raises(TicketError, match=r"\./nofolder: there is no such folder; a ticket on a hub is named owner/"):
        Ticket.from_pretrained("./nofolder")


def test_a_missing_folder_beside_others_is_not_looked_for_on_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    Path("zoo").mkdir()
    with pytest.raises(TicketError, match="there is no such folder in zoo"):
        Ticket.from_pretrained("zoo/missing")


@pytest.mark.parametrize(
    ("dataset", "shown"),
    [("/home/me/secret/mine.npz", 'load("mine.npz")'), ("cora", 'load("cora")'), ("data", "data = ...")],
)
def test_a_card_names_the_graph_and_no_folder(dataset: str, shown: str) -> None:
    ticket = random_ticket()
    card = replace(ticket, config=ticket.config.replace(dataset=dataset)).card()
    assert shown in card
    assert "secret" not in card


def test_a_file_is_to_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.safetensors").touch()
    with pytest.raises(TicketError, match=r"mine\.safetensors is a file; Ticket\.load reads it"):
        Ticket.from_pretrained(tmp_path / "mine.safetensors")


def test_a_folder_is_read_without_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    ticket = random_ticket()
    ticket.save(tmp_path / "ticket.safetensors", parts="inference")
    assert Ticket.from_pretrained(tmp_path).predict(graph()).equal(ticket.predict(graph()))
    with pytest.raises(ConfigError, match=r"pip install 'aceglt\[hub\]'"):
        Ticket.from_pretrained("me/mine")
