import json
import pickle
import socket
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from equipoise.core import Request, Rng, Unit, UnitError, UsageError
from equipoise.kit.language.endpoint import Endpoint, Prices, is_loopback
from equipoise.kit.language.loop import run
from equipoise.kit.language.talk import converse, generate_each
from equipoise.methods.language import FreeResponse, SystemPrompt

CHAT = [{"role": "user", "content": "What is 2+2?"}]


class Server(ThreadingHTTPServer):
    """Speaks OpenAI's protocol; ``script`` names what goes wrong, one word a request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[str] = []
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.times: list[float] = []
        self.live = self.most = 0
        self.lock = threading.Lock()
        self.capacity = 10_000
        self.samples = 10_000
        self.delay = 0.0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        server: Server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            server.bodies.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            server.times.append(time.monotonic())
            mode = server.script.pop(0) if server.script else "ok"
            server.live += 1
            server.most = max(server.most, server.live)
            full = server.live > server.capacity
        try:
            time.sleep(server.delay)
            self.answer("429" if full else mode, body)
        finally:
            with server.lock:
                server.live -= 1

    def answer(self, mode, body):
        if mode.isdigit():
            text = {"error": {"message": f"it said {mode} to sk-secret", "type": "x"}}
            self.send(int(mode), json.dumps(text).encode(), {"retry-after-ms": "20"})
        elif mode.startswith("wait"):
            self.send(429, b"{}", {"retry-after": mode.removeprefix("wait")})
        elif mode == "garbage":
            self.send(200, b"<html>not json</html>", {"content-type": "text/html"})
        elif mode == "no choices":
            self.send(200, b'{"choices": []}')
        elif mode == "odd":
            self.send(200, b'{"choices": [{"message": {"content": {"a": 1}}}]}')
        elif mode == "error in 200":
            self.send(200, b'{"error": {"message": "the model is gone"}}')
        elif mode == "half":
            whole = json.dumps(self.reply(body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[: len(whole) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif mode == "hang":
            time.sleep(1.5)
            self.close_connection = True
        elif mode == "drip":
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            for _ in range(30):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
        else:
            self.send(200, json.dumps(self.reply(body)).encode())

    def reply(self, body):
        n = min(body.get("n", 1), self.server.samples)
        if "messages" in body:
            text = f"echo {body['messages'][-1]['content']}"
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            if body.get("tools"):
                call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                choice = {
                    "message": {"role": "assistant", "content": None, "tool_calls": [call]},
                    "finish_reason": "tool_calls",
                }
            if body.get("logprobs"):
                choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.5}] * 2}
        else:
            choice = {"text": f" and {body['prompt']}", "finish_reason": "length"}
            if body.get("logprobs"):
                choice["logprobs"] = {"token_logprobs": [-1.0, -2.0, -3.0]}
        usage = {"prompt_tokens": 7, "completion_tokens": 3 * n, "total_tokens": 10}
        choices = [{"index": i, **choice} for i in range(n)]
        return {"id": "1", "object": "x", "created": 1, "choices": choices, "usage": usage}

    def send(self, status, payload, headers=None):
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


@pytest.fixture
def server():
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def endpoint(server, **settings):
    settings = {"max_retries": 1, "timeout": 5.0} | settings
    return Endpoint("m", base_url=server.url, **settings)


def ask(server, request=None, **settings):
    return run(endpoint(server, **settings).generate_one(request or Request(CHAT)))


def error(server, **settings):
    with pytest.raises(UnitError) as caught:
        ask(server, **settings)
    return caught.value


def test_chat_completions_carry_everything_that_was_asked(server):
    tools = ({"type": "function", "function": {"name": "f", "parameters": {}}},)
    request = Request(CHAT, 2, 9, 0.5, 0.9, ("\n",), tools, seed=3)
    answer = ask(server, request, prices=Prices(2.0, 10.0))
    assert server.bodies == [
        {
            "model": "m", "messages": CHAT, "n": 2, "max_tokens": 9, "temperature": 0.5,
            "top_p": 0.9, "stop": ["\n"], "tools": list(tools), "seed": 3,
        }
    ]  # fmt: skip
    assert answer.texts == ("", "")
    assert answer.finish == ("tool_calls", "tool_calls")
    assert [calls[0]["function"]["name"] for calls in answer.tool_calls] == ["f", "f"]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 6)
    assert answer.usage.dollars == pytest.approx((7 * 2 + 6 * 10) / 1e6)


def test_plain_text_is_completed(server):
    answer = ask(server, Request("once", log_probs=True))
    assert answer.text == " and once"
    assert answer.finish == ("length",)
    np.testing.assert_array_equal(answer.log_probs[0], [-1.0, -2.0, -3.0])
    assert server.bodies[0]["prompt"] == "once"


def test_log_probabilities_of_chat(server):
    answer = ask(server, Request(CHAT, log_probs=True))
    np.testing.assert_array_equal(answer.log_probs[0], [-0.5, -0.5])


def test_samples_that_a_server_leaves_out_are_asked_for_again(server):
    server.samples = 2
    answer = ask(server, Request(CHAT, n=5, seed=10))
    assert len(answer.texts) == len(answer.finish) == 5
    assert [(b.get("n", 1), b["seed"]) for b in server.bodies] == [(5, 10), (3, 12), (1, 14)]
    assert answer.usage.output_tokens == 6 + 6 + 3


@pytest.mark.parametrize("mode", ["429", "500", "503", "half", "garbage", "no choices"])
def test_a_passing_failure_is_tried_again(server, mode):
    server.script = [mode]
    assert ask(server).text == "echo What is 2+2?"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("mode", "kind", "says"),
    [
        ("429", "rate_limit", "127.0.0.1 limits the rate of requests: it said 429"),
        ("500", "server", "failed with status 500: it said 500"),
        ("half", "connection", "broke off"),
        ("garbage", "garbage", "did not answer in JSON: '<html>not json"),
        ("no choices", "garbage", "answered without choices"),
        ("odd", "garbage", "content that is not text"),
        ("error in 200", "server", "the model is gone"),
        ("hang", "timeout", "did not answer within 0.2 s in 2 attempts"),
    ],
)
def test_a_failure_that_stays_is_one_sentence_with_a_kind(server, mode, kind, says):
    server.script = [mode] * 2
    found = error(server, timeout=0.2 if mode == "hang" else 5.0)
    assert found.kind == kind
    assert says in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(("status", "kind"), [(400, "request"), (404, "request"), (401, "auth")])
def test_a_request_that_is_refused_is_not_repeated(server, status, kind):
    server.script = [str(status)]
    assert error(server).kind.startswith(kind)
    assert len(server.bodies) == 1


def test_a_server_that_drips_is_cut_off(server):
    server.script = ["drip"]
    began = time.monotonic()
    assert error(server, timeout=0.4, max_retries=0).kind == "timeout"
    assert time.monotonic() - began < 2.9, "the server goes on for 3 s"


def test_nobody_there():
    with closing(socket.socket()) as spare:
        spare.bind(("127.0.0.1", 0))
        port = spare.getsockname()[1]
    subject = Endpoint("m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
    (found,) = generate_each(subject, [Request(CHAT)])
    assert isinstance(found, UnitError)
    assert found.kind == "connection"
    assert "127.0.0.1 could not be reached" in str(found)


def test_failures_of_some_leave_the_others(server):
    server.script = ["400", "ok", "404"]
    found = generate_each(endpoint(server, max_connections=1), [Request(CHAT)] * 5)
    assert [isinstance(f, UnitError) for f in found] == [True, False, True, False, False]


def test_concurrency_finds_what_the_server_bears(server):
    server.capacity, server.delay = 4, 0.02
    subject = endpoint(server, max_connections=32, max_retries=8)
    found = generate_each(subject, [Request(CHAT, seed=i) for i in range(150)])
    assert not [f for f in found if isinstance(f, UnitError)]
    (line,) = subject._lines.values()
    assert line.limiter.limit < 16, "halved by refusals, and not back at the most"
    assert len(server.bodies) < 220, "a third refused at worst; a fixed 32 has most refused"
    assert line.limiter.active == 0


def test_concurrency_grows_to_the_most_that_is_allowed(server):
    server.delay = 0.1
    subject = endpoint(server, max_connections=16)
    generate_each(subject, [Request(CHAT, seed=i) for i in range(100)])
    (line,) = subject._lines.values()
    assert line.limiter.limit == 16
    assert 8 < server.most <= 16, "it starts with 8"


def test_waits_as_long_as_the_server_asks(server):
    server.script = ["wait1"]
    ask(server)
    assert server.times[1] - server.times[0] > 0.95


def test_requests_a_minute_are_paced(server):
    subject = endpoint(server, requests_per_minute=1200)
    began = time.monotonic()
    generate_each(subject, [Request(CHAT)] * 6)
    assert time.monotonic() - began >= 0.25, "the sixth is sent five gaps of 50 ms after the first"
    assert len(server.bodies) == 6


def test_connections_stay_open_between_batches(server):
    subject = endpoint(server)
    for _ in range(3):
        generate_each(subject, [Request(CHAT)])
    assert len(subject._lines) == 1


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    subject = endpoint(server, api_key_env="MY_KEY")
    server.script = ["401"]
    with pytest.raises(UnitError) as caught:
        run(subject.generate_one(Request(CHAT)))
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert str(caught.value) == (
        "127.0.0.1 refuses the key in MY_KEY (status 401): it said 401 to ***"
    )
    assert b"sk-secret" not in pickle.dumps(subject)
    assert "sk-secret" not in repr(subject) + repr(vars(subject))


def test_survives_pickling(server):
    subject = pickle.loads(pickle.dumps(endpoint(server)))
    assert run(subject.generate_one(Request(CHAT))).text == "echo What is 2+2?"


def test_a_remote_server_needs_a_key_and_an_address_must_be_one():
    with pytest.raises(UsageError, match="OPENAI_API_KEY holds no key for api\\.openai\\.com"):
        Endpoint("m")
    with pytest.raises(UsageError, match="must be an address such as"):
        Endpoint("m", base_url="localhost:8000")
    with pytest.raises(UsageError, match="must not hold a name or password"):
        Endpoint("m", base_url="http://me:secret@localhost/v1")
    assert is_loopback("http://localhost:1/v1")
    assert is_loopback("http://[::1]:1/v1")
    assert not is_loopback("http://127.evil.example/v1")


def test_openai_itself_gets_the_newer_name_of_the_limit(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    body = Endpoint("m")._body(Request(CHAT, max_tokens=5))
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


def test_conversations_with_an_endpoint_that_is_rewritten(server):
    rows = tuple({"question": f"q{i}", "answer": f"echo q{i}"} for i in range(20))
    task = FreeResponse(rows=rows)
    server.script = ["ok", "400", "ok"]
    subject = SystemPrompt("Be brief.").apply(endpoint(server, max_connections=1), Rng(0))
    units: list[Unit] = list(task.units(Rng(0)))
    outcomes = converse(task, subject, units, Rng(0))
    assert [o.status for o in outcomes] == ["ok", "error", *["ok"] * 18]
    assert all(o.scores["correct"] == 1 for o in outcomes if o.status == "ok")
    assert server.bodies[0]["messages"][0] == {"role": "system", "content": "Be brief."}
