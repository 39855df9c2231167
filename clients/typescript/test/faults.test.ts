import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTCPServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Causes } from "../src/endpoint.js";
import { Gateway } from "../src/gateway.js";
import { Client, RefusedError, UnavailableError } from "../src/index.js";
import { encode, Etcd, eventually, Proxy } from "./etcd.js";

/** Runs a test with an etcd of its own, and a client that reaches it through a proxy. */
function through(name: string, run: (etcd: Etcd, proxy: Proxy, locks: Client) => Promise<void>) {
  void test(name, async () => {
    const etcd = await Etcd.start();
    const proxy = await Proxy.start(etcd.endpoint);
    try {
      await run(etcd, proxy, new Client(proxy.endpoint, { owner: "test" }));
    } finally {
      proxy.stop();
      await etcd.stop();
    }
  });
}

/** The answer to the first transaction whose body has this text is lost, all others pass. */
function mute(text: string): Proxy["fate"] {
  let met = false;
  return (path, body) => {
    if (met || path !== "/v3/kv/txn" || !body.includes(text)) return "pass";
    met = true;
    return "mute";
  };
}

through("a join, a turn and a release whose answers are lost are recognised", async (etcd, proxy, locks) => {
  const holder = await new Client(etcd.endpoint).lock("queue");
  proxy.fate = mute("\"since\\\"");
  const waiter = locks.lock("queue");
  await eventually("a ticket", async () => Object.keys(await etcd.read("/mutexes/.queue/queue/")).length === 2);
  proxy.fate = mute("auto_unlock_at");
  await holder.release();
  const lock = await waiter;
  assert.equal((await etcd.read("/mutexes/queue/"))["/mutexes/queue/uuid"], lock.uuid);
  proxy.fate = mute("/mutexes/.history/");
  await lock.release();
  assert.ok(`/mutexes/.cancelled/${lock.uuid}` in await etcd.read("/mutexes/.cancelled/"));
  assert.deepEqual(await etcd.read("/mutexes/queue/"), {});
});

through("a waiter that etcd forgot joins again", async (etcd, _, locks) => {
  const holder = await locks.lock("forgotten");
  const waiter = locks.lock("forgotten");
  const queue = "/mutexes/.queue/forgotten/";
  const tickets = async () => Object.keys(await etcd.read(queue)).filter((key) => !key.endsWith("/.tail"));
  const [ticket = ""] = await eventually("a ticket", async () => (await tickets()).length === 1 && tickets());
  await etcd.remove(queue);
  await eventually("another ticket", async () => {
    const now = await tickets();
    return now.length === 1 && !now.includes(ticket);
  });
  await holder.release();
  await (await waiter).release();
});

test("the next endpoint answers when one does not, and etcd may be restarted under a waiter", async () => {
  const etcd = await Etcd.start();
  const locks = new Client(["http://127.0.0.1:1", etcd.endpoint]);
  try {
    const holder = await locks.lock("a");
    const waiter = locks.lock("a");
    await eventually("a ticket", async () => Object.keys(await etcd.read("/mutexes/.queue/a/")).length === 2);
    await etcd.restart();
    await holder.alive("still here");
    await holder.release();
    await (await waiter).release();
    assert.deepEqual(await etcd.read("/mutexes/a/"), {});
  } finally {
    await etcd.stop();
  }
});

test("without etcd a call fails soon, with a clear message", async () => {
  const began = Date.now();
  await assert.rejects(new Client("http://127.0.0.1:1", { timeout: 1 }).lock("a", { wait: 0 }), (error: Error) => {
    assert.match(error.message, /^etcd did not answer: http:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/);
    return error instanceof UnavailableError;
  });
  assert.ok(Date.now() - began < 30_000);
});

test("silence in a hurry hides no failure", () => {
  const causes = new Causes();
  causes.add("a", "HTTP 503: no leader");
  causes.add("a", "no answer in 0.1 s", false, true);
  assert.match(causes.error(["a"]).message, /no leader$/);
});

/** What stands where etcd should. */
async function impostor(status: number, text: string) {
  const server = createServer((request, response) => {
    request.resume().on("end", () => response.writeHead(status).end(text));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}`, stop: () => server.close() };
}

const page = "<h1>\u001b[2J</h1>";

for (const [status, text] of [
  [404, page], [401, page], [403, '{"error":"forbidden"}'], [200, page], [200, '{"status":"ok"}'],
  [200, '{"header":{}}'], [200, ""], [502, page], [500, '{"code":"7","message":"permission denied"}'],
] as const) {
  test(`an answer ${status} ${JSON.stringify(text)} is not from etcd, so the next endpoint is tried`, async () => {
    const etcd = await Etcd.start();
    const other = await impostor(status, text);
    try {
      const good = new URL(etcd.endpoint).host;
      for (const user of [{}, { user: "ann", password: "secret" }]) {
        const lock = await new Client([other.endpoint, good], user).lock("a", { wait: 0 });
        await lock.release();
        const late = new Client([other.endpoint, "127.0.0.1:1"], { ...user, timeout: 1 }).lock("a", { wait: 0 });
        const login = "user" in user ? "login: " : "";
        const said = `http://${other.endpoint}: ${login}HTTP ${status}, which is not an answer from etcd`;
        await assert.rejects(late, (error: Error) => {
          assert.ok(error instanceof UnavailableError);
          assert.ok(error.message.startsWith(`etcd did not answer: ${said}; http://127.0.0.1:1: `), error.message);
          return true;
        });
      }
    } finally {
      other.stop();
      await etcd.stop();
    }
  });
}

/** Answers requests with their bodies, on connections that it keeps: "late" after a while, "long" and "twice" twice. */
async function parrot() {
  const server = createTCPServer((socket) => {
    socket.unref();
    let received = "";
    const answer = () => {
      const [, head = "", body = ""] = /^(.*?\r\n\r\n)(.*)$/s.exec(received) ?? [];
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1]);
      if (!head || body.length < length) return;
      received = "";
      const text = JSON.stringify({ header: { revision: "1" }, ...JSON.parse(body) as object });
      const raw = `HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
      setTimeout(() => socket.write(text.includes("long") ? raw + raw : raw), text.includes("late") ? 200 : 0);
      if (text.includes("twice")) setTimeout(() => socket.write(raw), 50);
    };
    socket.on("data", (data) => { received += String(data); answer(); }).on("error", () => undefined);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}`, stop: () => server.close() };
}

test("no answer is taken for that to a later request", async () => {
  const { endpoint, stop } = await parrot();
  const gateway = new Gateway({
    endpoints: [endpoint], user: "", password: "", ca: "", cert: "", key: "", timeout: 30, releaseAtExit: false,
  });
  const asks = async (said: string, milliseconds = 30_000, signal?: AbortSignal) =>
    (await gateway.call("/", { said }, { until: performance.now() + milliseconds, signal })).body.said;
  for (const [what, happens] of Object.entries({
    "more than one answer": () => asks("long"),
    "another answer": () => asks("twice"),
    "a timeout": () => asks("late", 50),
    "an abort": () => asks("late", 30_000, AbortSignal.timeout(50)),
  })) {
    await happens();
    await sleep(300);
    for (const text of ["one", "two", "three"]) assert.equal(await asks(text), text, `after ${what}`);
  }
  stop();
});

test("users log in, log in again after their token expires, and are refused what they may not do", async () => {
  const etcd = await Etcd.start();
  try {
    const range = { key: encode("/mutexes/"), range_end: encode("/mutexes0") };
    await etcd.post("/v3/auth/user/add", { name: "root", password: "root" });
    await etcd.post("/v3/auth/user/grant", { user: "root", role: "root" });
    await etcd.post("/v3/auth/role/add", { name: "locks" });
    await etcd.post("/v3/auth/role/grant", { name: "locks", perm: { permType: "READWRITE", ...range } });
    await etcd.post("/v3/auth/user/add", { name: "billing", password: "secret" });
    await etcd.post("/v3/auth/user/grant", { user: "billing", role: "locks" });
    const user = { user: "billing", password: "secret" };
    const early = await new Client(etcd.endpoint, user).lock("before there are users");
    await etcd.post("/v3/auth/enable", {});
    await early.release();

    const locks = new Client(etcd.endpoint, user);
    const lock = await locks.lock("a");
    const waiter = locks.lock("a");
    await etcd.restart(); // it forgets its tokens
    await lock.alive("with another token");
    await lock.release();
    await (await waiter).release();

    for (const [options, words] of [
      [{ ...user, password: "wrong" }, /^login as "billing": .*invalid user ID or password/],
      [{}, /user name is empty/],
      [{ ...user, prefix: "/elsewhere/" }, /permission denied/],
    ] as const) {
      await assert.rejects(new Client(etcd.endpoint, options).lock("a", { wait: 0 }), (error: Error) => {
        assert.match(error.message, words);
        return error instanceof RefusedError;
      });
    }
  } finally {
    await etcd.stop();
  }
});

test("TLS, with a certificate for the client", async () => {
  const dir = mkdtempSync(join(tmpdir(), "clustermutex-tls-"));
  const etcd = await Etcd.start("-tls", dir, "-client-certs");
  const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
  try {
    const locks = new Client(etcd.endpoint, { ca: cert, cert, key });
    const lock = await locks.lock("secret");
    const waiter = locks.lock("secret");
    await lock.alive("on");
    await lock.release();
    await (await waiter).release();
    const trusting = { cert, key };
    const sentence = `the certificate of ${etcd.endpoint} is not trusted: self-signed certificate`;
    await assert.rejects(new Client(etcd.endpoint, trusting).lock("a"), (error: Error) => {
      assert.equal(error.message, sentence);
      return error instanceof RefusedError;
    });
    const away = new Client(["http://127.0.0.1:1", etcd.endpoint], { ...trusting, timeout: 1 });
    await assert.rejects(away.lock("a", { wait: 0 }), (error: Error) => {
      assert.ok(error.message.endsWith(`; ${sentence}`), error.message);
      return error instanceof UnavailableError;
    });
  } finally {
    await etcd.stop();
    rmSync(dir, { recursive: true });
  }
});
