"""A source from a repository: git is in the image, and works below a root that nobody can write to."""

from typing import Any

from cluster.pods import running, until_said
from cluster.release import Cluster
from support import RUNS, Api, Gateway

SERVER = r"""
import gzip, http.server, os, subprocess

os.environ |= {"HOME": "/tmp", "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "t",
               "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "t@example.org"}
git = lambda *arguments, **more: subprocess.run(["git", *arguments], check=True, capture_output=True, **more).stdout
git("init", "-q", "/tmp/app")
os.chdir("/tmp/app")
open("app.py", "w").write("def handler(event):\n    return {'from': 'a repository', 'got': event}\n")
git("add", "app.py")
git("commit", "-qm", "one")

class Smart(http.server.BaseHTTPRequestHandler):
    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        refs = git("upload-pack", "--stateless-rpc", "--advertise-refs", ".")
        self.answer("advertisement", b"001e# service=git-upload-pack\n0000" + refs)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.answer("result", git("upload-pack", "--stateless-rpc", ".", input=body))

server = http.server.ThreadingHTTPServer(("", 8000), Smart)
print(git("rev-parse", "HEAD").decode().strip(), flush=True)
server.serve_forever()
"""


def test_a_function_from_a_repository(stack: Any, release: Cluster, api: Api, gateway: Gateway) -> None:
    with running(release, ["python", "-c", SERVER]) as pod, gateway.client() as client:
        address, commit = until_said(release, pod)
        run = {
            "apiVersion": "kruntimes.io/v1alpha1",
            "kind": "Run",
            "metadata": {"name": pod},
            "spec": {
                "runtime": "python",
                "source": {"repoURL": f"http://{address}:8000/app", "commitSHA": commit},
                "mode": {"function": {"handler": "app.handler"}},
            },
        }
        api.call("POST", RUNS.format("default"), run)
        try:
            url = api.ready(pod)["status"]["endpoint"]["url"]
            answer = client.post(url, headers=gateway.headers(), json=1)
            assert (answer.status_code, answer.json()) == (200, {"from": "a repository", "got": 1})
        finally:
            api.delete(pod)
