import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import os from "node:os";
import { after, before, test, type TestContext } from "node:test";

import { Client, LostError, UnavailableError, WaitTimeoutError } from "../src/index.js";
import { Etcd, eventually, Proxy } from "./etcd.js";

let etcd: Etcd;
let locks: Client;

before(async () => {
  etcd = await Etcd.start();
  locks = new Client(etcd.endpoint, { owner: "test" });
});
after(() => etcd.stop());

/** Sets clocks of this machine forward, in seconds, from now on. No timer notices. */
function setForward(t: TestContext, by: { boot?: number; monotonic?: number; wall?: number }) {
  const { boot = 0, monotonic = 0, wall = 0 } = by;
  const [uptime, now, date] = [os.uptime, performance.now.bind(performance), Date.now];
  t.mock.method(os, "uptime", () => uptime() + boot);
  t.mock.method(performance, "now", () => now() + monotonic * 1000);
  t.mock.method(Date, "now", () => date() + wall * 1000);
}

for (const [what, clocks] of [
  ["work that let no timer fire", { boot: 40, monotonic: 40, wall: 40 }],
  ["a machine that was suspended", { boot: 40, wall: 40 }],
] as const) {
  test(`the deadline passes in ${what}: a check notices at once`, async (t) => {
    const lost: LostError[] = [];
    const hold = { alertAfter: 10, autoUnlockAfter: 40, onLost: (error: LostError) => lost.push(error) };
    const all = await Promise.all(["a", "b", "c"].map((name) => locks.lock(`${what} ${name}`, hold)));
    const [first, second, third] = all;
    assert.ok(first && second && third);
    const { signal } = third; // as it is passed to a function
    assert.deepEqual([first.lost, second.signal.aborted, signal.aborted, lost.length], [undefined, false, false, 0]);
    setForward(t, clocks);
    assert.equal(first.lost, "deadline");
    assert.ok(first.signal.reason instanceof LostError);
    assert.equal(second.signal.aborted, true);
    assert.throws(() => signal.throwIfAborted(), LostError);
    assert.equal(third.lost, "deadline");
    assert.deepEqual(lost.map((error) => error.reason), ["deadline", "deadline", "deadline"]);
    await Promise.all(all.map((lock) => lock.release()));
  });
}

test("a lock whose answer came after the machine was suspended is taken anew", async (t) => {
  const proxy = await Proxy.start(etcd.endpoint);
  const behind = new Client(proxy.endpoint, { owner: "test" });
  for (const take of [() => behind.lock("slept"), () => behind.lockAll(["slept"])]) {
    let slept = false;
    proxy.fate = (_, body) => {
      if (!slept && body.includes("auto_unlock_at")) setForward(t, { boot: 3000, wall: 3000 });
      slept ||= body.includes("auto_unlock_at");
      return "pass";
    };
    const held = await take();
    assert.deepEqual([held.lost, slept], [undefined, true]);
    await held.release();
    t.mock.restoreAll();
  }
  proxy.stop();
});

test("setting the wall clock does not shorten a hold", async (t) => {
  const lock = await locks.lock("set", { alertAfter: 10, autoUnlockAfter: 40 });
  setForward(t, { wall: 3600 });
  await lock.alive("one");
  await lock.alive("two");
  assert.equal(lock.lost, undefined);
  t.mock.restoreAll();
  setForward(t, { wall: -3600 });
  await lock.alive("three");
  await lock.release();
});

/** An etcd that accepts connections and answers nothing. */
async function hung() {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stop: () => server.close().unref() };
}

/** Asserts that a call ends long before the client's patience in other calls would end. */
async function soon(call: Promise<unknown>, error: new (...args: never[]) => Error) {
  const began = performance.now();
  await assert.rejects(call, error);
  assert.ok(performance.now() - began < 5000, `it took ${performance.now() - began} ms`);
}

test("a wait bounds the call, and the timeout bounds a try, whatever etcd does", async () => {
  const silent = await hung();
  for (const endpoints of [[silent.endpoint], ["http://127.0.0.1:1"], [silent.endpoint, "http://127.0.0.1:1"]]) {
    await soon(new Client(endpoints, { timeout: 60 }).lock("a", { wait: 0.3 }), UnavailableError);
    await soon(new Client(endpoints, { timeout: 0.3 }).lock("a", { wait: 0 }), UnavailableError);
    const user = { user: "billing", password: "secret", timeout: 60 };
    await soon(new Client(endpoints, user).lock("a", { wait: 0.3 }), UnavailableError);
  }
  silent.stop();
});

test("a wait that ends in etcd's silence says who holds the lock", async () => {
  const proxy = await Proxy.start(etcd.endpoint);
  const lock = await locks.lock("silence", { purpose: "the first" });
  const waiter = new Client(proxy.endpoint, { timeout: 60 }).lock("silence", { wait: 2 });
  const late = assert.rejects(waiter, (error: Error) =>
    error instanceof WaitTimeoutError && error.holder?.purpose === "the first");
  await eventually("a ticket", async () => Object.keys(await etcd.read("/mutexes/.queue/silence/")).length === 2);
  proxy.fate = () => "lose";
  await late;
  proxy.stop();
  await lock.release();
});
