import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client, HeldError, LostError, RefusedError, WaitTimeoutError } from "../src/index.js";
import { claimOf, hasRoom, nobody } from "../src/kinds.js";
import { began } from "../src/periods.js";
import type { Holder } from "../src/record.js";
import { Etcd, eventually } from "./etcd.js";

let etcd: Etcd;
let locks: Client;

before(async () => {
  etcd = await Etcd.start();
  locks = new Client(etcd.endpoint, { owner: "billing", timeout: 10 });
});
after(() => etcd.stop());

test("each permit of a semaphore has a record of its own", async () => {
  const take = () => locks.lock("pool", { semaphore: 3, wait: 0 });
  const held = [await take(), await take(), await take()];
  assert.deepEqual(held.map(({ name }) => name), ["pool#1", "pool#2", "pool#3"]);
  await assert.rejects(take(), (error: HeldError) => {
    assert.deepEqual(error.holders.map(({ uuid }) => uuid), held.map(({ uuid }) => uuid));
    return error instanceof HeldError;
  });
  await held[1]?.release();
  held[1] = await take();
  assert.equal(held[1].name, "pool#2", "the lowest number that is free");
  await assert.rejects(locks.lock("pool", { semaphore: 3, weight: 3, wait: 2 }), WaitTimeoutError);
  for (const lock of held) await lock.release();
});

test("contradictory options are refused", async () => {
  for (const options of [
    { semaphore: 0 }, { semaphore: 1.5 }, { semaphore: 2, weight: 3 }, { weight: 2 }, { shared: true, exclusive: true },
    { shared: true, attributes: { kind: "mine" } },
  ]) await assert.rejects(locks.lock("pool", options), RefusedError, JSON.stringify(options));
  await assert.rejects(locks.lock("pool#2", { shared: true }), RefusedError);
  await assert.rejects(locks.lockAll(["a", "a"]), RefusedError);
});

test("several locks are taken all or none", async () => {
  const both = await locks.lockAll(["b", "a"], { wait: 0 });
  assert.deepEqual(both.all.map(({ name }) => name), ["a", "b"]);
  assert.equal(both.all[0]?.token, both.all[1]?.token);
  await assert.rejects(locks.lockAll(["a", "b"], { wait: 0 }), HeldError);
  await both.alive("half");
  await both.release();
  const one = await locks.lock("b");
  await assert.rejects(locks.lockAll(["a", "b"], { wait: 2 }), /^WaitTimeoutError: gave up after 2 s: lock "b"/);
  assert.deepEqual(await etcd.read("/mutexes/a/"), {}, "the free one was given back");
  const waiting = locks.lockAll(["a", "b"]);
  const alive = async () => (await etcd.read("/mutexes/a/"))["/mutexes/a/alive"];
  await eventually("why it does not work", async () => (await alive())?.includes("waits for lock"));
  await one.release();
  await (await waiting).release();
});

test("locks of mixed kinds and any number are taken together", async () => {
  const many = Array.from({ length: 25 }, (_, n) => `m${String(n).padStart(2, "0")}`);
  await using all = await locks.lockAll([...many, { name: "books", shared: true }, { name: "pool", semaphore: 2 }]);
  assert.deepEqual(all.all.map(({ name }) => name), ["books#1", ...many, "pool#1"]);
  const with25 = (await etcd.read("/mutexes/m00/"))["/mutexes/m00/metadata"];
  assert.match(with25 ?? "", /"together_with":"books, m01, .*, pool"/);
  await assert.rejects(locks.lockAll(["books", "m"], { exclusive: true, wait: 2 }), WaitTimeoutError);
  await assert.rejects(locks.lockAll(["a"], { exclusive: true, wait: 0 }), RefusedError);
  await assert.rejects(locks.lockAll(["a", { name: "a", shared: true }]), RefusedError);
});

test("a failed job gives its period back with retryOnError", async () => {
  const fails = (retryOnError: boolean) =>
    locks.oncePer("failing", 86400, () => { throw new SyntaxError("mine"); }, { retryOnError });
  await assert.rejects(fails(true), SyntaxError);
  await assert.rejects(fails(false), SyntaxError);
  assert.equal(await fails(true), false);
});

test("a job runs once per period", async () => {
  let ran = 0;
  const once = () => locks.oncePer("job", 86400, () => ran++);
  await locks.with("job", () => assert.rejects(once(), HeldError));
  assert.deepEqual([await once(), await once(), ran], [true, false, 1]);
  await etcd.put(["/mutexes/.periods/job", `${Math.floor(Date.now() / 1000) + 200_000} taken by a clock ahead`]);
  await assert.rejects(once(), /"taken by a clock ahead"; no earlier one runs unless its key .*job is deleted/);
  assert.equal(began(1553682600500, 86400, 5400), 1553650200000);
  assert.throws(() => began(1553682600500, 60, 60), RefusedError);
});

test("a job runs once for a tick", async () => {
  const at = (tick: string) => locks.onceAt("ticks", new Date(tick), () => undefined);
  const ran = [];
  for (const minute of ["03:00", "03:00", "02:59", "03:01"]) ran.push(await at(`2019-03-27T${minute}+01:00`));
  assert.deepEqual(ran, [true, false, false, true]);
  await assert.rejects(at("2100-01-01T00:00Z"), /the tick of 2100-01-01T.* has not come: this machine's clock says/);
  await assert.rejects(at("soon"), /RefusedError: the tick is Invalid Date; want a Date since 1970/);
});

test("one process takes the lock, another releases it", async () => {
  const left = await locks.reserve("handover", "the run of the night", 60, { semaphore: 2 });
  assert.equal(left.name, "handover#1");
  assert.match((await etcd.read("/mutexes/handover#1/"))["/mutexes/handover#1/metadata"] ?? "", /"detached":true/);
  const worker = await locks.adopt(left.name, left.uuid);
  assert.equal(worker.token, left.token);
  await worker.alive("half of it");
  await worker.release();
  assert.deepEqual(await etcd.read("/mutexes/handover#1/"), {});
  await assert.rejects(locks.adopt(left.name, left.uuid), LostError);
  await assert.rejects(locks.reserve("handover", "", 60), /needs a reason/);
});

test("a leader that cannot work is lost", async () => {
  assert.equal(await locks.leader("search"), undefined);
  let fit = true;
  const lead = await locks.campaign("search", { life: 1.5, address: "10.0.0.1:80", check: () => fit });
  const leader = await locks.leader("search");
  assert.deepEqual([leader?.token, leader?.address], [lead.token, "10.0.0.1:80"]);
  await eventually("a sign of life", async () => "/mutexes/search/alive" in await etcd.read("/mutexes/search/"));
  fit = false;
  await eventually("its end", () => lead.lost);
  assert.equal(lead.lost, "deadline");
});

test("room is computed from the holders' records", () => {
  const share = (permits?: string) => ({ uuid: "u", token: 1n, ...(permits && { permits }) } as Holder);
  const need = { kind: "semaphore", limit: 3, weight: 1 } as const;
  const room = (permits: string, weight: number) =>
    hasRoom({ ...nobody, shares: new Map([[1, share(permits)]]) }, { ...need, weight });
  assert.deepEqual([room("", 2), room("2", 1), room("2", 2), room("many", 1)], [true, true, false, false]);
  const readers = { ...nobody, revision: "7", shares: new Map([[1, share()]]), delays: new Map([[3, {}]]) };
  assert.equal(hasRoom(readers, { kind: "exclusive" }), false);
  assert.deepEqual([0, 1].map((skip) => claimOf(readers, { kind: "shared" }, skip)),
    [{ share: 2, counted: "7" }, { share: 4, counted: "7" }]);
});
