#!/usr/bin/env python3
"""Chats with a server through its page in headless Chromium. Usage: chat_page.py PLAN CHECKPOINT

Types a message with the keyboard on a wide window, on a phone and with dark colours. Checks that the answer arrives in
pieces and is the one of the API, that a second message continues the chat, that the page fits the window, and that it
writes no error to its console. Prints one line per view."""
import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from patience import slowdown

VIEWS = {"wide": ("1000,900", 1), "phone": ("390,844", 1), "dark": ("1000,900", 0)}  # window, preferred colour scheme

# Types like a person, then leaves what it found in an element that --dump-dom prints.
PROBE = """
<script>
addEventListener('load', async () => {
  const at = id => document.getElementById(id), found = {pieces: 0};
  const until = async (what, test) => {
    for (let turn = 0; turn < 600; ++turn) {
      if (test())
        return;
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    throw new Error('no ' + what);
  };
  const type = text => {
    at('text').value = text;
    at('text').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', cancelable: true, bubbles: true}));
  };
  try {
    await until('name of the model', () => at('name').textContent !== 'Espalier');
    at('temperature').value = 0;
    at('most').value = 5;
    new MutationObserver(changes => {
      found.pieces += changes.filter(change => change.target.nodeName === 'P').length;
    }).observe(at('log'), {childList: true, subtree: true, characterData: true});
    found.focus = document.activeElement.id;
    type('a');
    await until('answer', () => at('send').textContent === 'Send' && document.querySelectorAll('.assistant').length === 1);
    found.focusAfter = document.activeElement.id;
    at('new').click();
    found.left = document.querySelectorAll('.message').length;
    type('b');
    await until('second answer', () => at('send').textContent === 'Send' && document.querySelector('.assistant'));
    found.answer = document.querySelector('.assistant p').textContent;
    found.errors = [...document.querySelectorAll('.error p')].map(node => node.textContent);
    at('most').value = 0.5;
    type('c');
    await until('error', () => document.querySelector('.error'));
    found.refusal = document.querySelector('.error p').textContent;
  } catch (error) {
    found.failure = error.message;
  }
  Object.assign(found, {wide: document.documentElement.scrollWidth, window: innerWidth,
                        background: getComputedStyle(document.body).backgroundColor,
                        inView: at('send').getBoundingClientRect().bottom <= innerHeight});
  await fetch('/probe', {method: 'POST', body: JSON.stringify(found)});
});
</script>
"""


class Proxy(BaseHTTPRequestHandler):
    """Adds the probe to the page, takes its findings, and passes other requests on to the server."""
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        self.forward(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/probe":
            self.server.found.append(json.loads(body))
            self.server.has_found.set()
            self.send_response(204)
            self.end_headers()
        else:
            self.forward(body)

    def forward(self, body):
        request = urllib.request.Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            answer = error
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.end_headers()
        if self.path == "/":
            text = answer.read().decode()
            self.wfile.write(text.replace("</body>", PROBE + "</body>").encode())
        else:
            while piece := answer.read1():
                self.wfile.write(piece)
                self.wfile.flush()

    def log_message(self, *_):
        pass


def look(proxy, name, window, scheme):
    proxy.found, proxy.has_found = [], threading.Event()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile("w+") as console:
        browser = subprocess.Popen(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                                    f"--user-data-dir={profile}", f"--window-size={window}", "--enable-logging=stderr",
                                    "--remote-debugging-port=0", f"--blink-settings=preferredColorScheme={scheme}",
                                    f"http://127.0.0.1:{proxy.server_port}/"], stdout=console, stderr=console)
        has_found = proxy.has_found.wait(timeout=60 * slowdown)
        browser.terminate()
        browser.wait()
        console.seek(0)
        said = console.read()
    assert has_found, f"{name}: the page did not finish: {said[-3000:]}"
    found = proxy.found[0]
    errors = [line for line in re.findall(r"CONSOLE[^\n]*", said) if "status of 400" not in line]
    assert "failure" not in found and not found["errors"] and not errors, (name, found, errors)
    assert found["wide"] <= found["window"] and found["inView"], (name, found)
    assert found["focus"] == found["focusAfter"] == "text" and found["left"] == 0, (name, found)
    assert found["pieces"] > 2, (name, found)  # the answers arrive in pieces
    assert found["answer"] == proxy.expected, (name, found, proxy.expected)
    assert found["refusal"] == "max_tokens is not an integer", (name, found)
    print(f"{name}: chats")
    return found["background"]


def main():
    server = subprocess.Popen(["espalier", "serve", sys.argv[1], "--checkpoint", sys.argv[2], "--tokenizer", "bytes",
                               "--chat-template", "chatml"], stdout=subprocess.PIPE, text=True)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    try:
        proxy.target = server.stdout.readline().split()[-1]
        body = {"messages": [{"role": "user", "content": "b"}], "temperature": 0, "max_tokens": 5}
        answer = urllib.request.urlopen(urllib.request.Request(
            proxy.target + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}))
        proxy.expected = json.load(answer)["choices"][0]["message"]["content"]
        page = urllib.request.urlopen(proxy.target + "/").read().decode()
        outside = re.findall(r'(?:src|href)\s*=\s*["\'](?!data:,)[^"\']+|@import|url\(|https?://[^\s"\'<]+', page)
        assert not outside, f"the page names other files: {outside[:3]}"
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        colours = {name: look(proxy, name, *view) for name, view in VIEWS.items()}
        assert colours["wide"] != colours["dark"], colours
    finally:
        server.terminate()
        server.wait()


main()
