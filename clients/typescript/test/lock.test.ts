import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, HeldError, LostError, RefusedError, WaitTimeoutError } from "../src/index.js";
import type { Lock, Request } from "../src/index.js";
import { parseObject } from "../src/record.js";
import { Etcd, eventually } from "./etcd.js";

let etcd: Etcd;
let locks: Client;

before(async () => {
  etcd = await Etcd.start();
  locks = new Client(etcd.endpoint, { owner: "billing", timeout: 10 });
});
after(() => etcd.stop());

const recordOf = (name: string) => etcd.read(`/mutexes/${name.replaceAll("/", "%2F")}/`);
const ticketsOf = async (name: string) =>
  Object.keys(await etcd.read(`/mutexes/.queue/${name}/`)).filter((key) => !key.endsWith("/.tail"));

test("a lock is taken with a full record and released", async () => {
  const began = Date.now();
  const options = { purpose: "August", attributes: { rows: 9 } };
  const result = await locks.with("billing/invoice-run", options, async (lock) => {
    const record = await recordOf("billing/invoice-run");
    const field = (name: string) => record[`/mutexes/billing%2Finvoice-run/${name}`] ?? "";
    const metadata = parseObject(field("metadata"));
    assert.equal(field("uuid"), lock.uuid);
    assert.ok(lock.token > 0n && lock.lost === undefined && lock.asked === undefined && !lock.signal.aborted);
    assert.equal(metadata.owner, "billing");
    assert.equal(metadata.purpose, "August");
    assert.equal(metadata.rows, 9);
    assert.equal(metadata.pid, process.pid);
    assert.equal(metadata.client, "typescript/0.2.0");
    const lockedAt = Number(metadata.locked_at);
    assert.ok(lockedAt * 1000 >= began && lockedAt * 1000 <= Date.now());
    assert.equal(Math.round(Number(field("alert_at")) - lockedAt), 300);
    assert.equal(Math.round(Number(field("auto_unlock_at")) - lockedAt), 900);
    const [first = ""] = String(metadata.backtrace).split("\n");
    assert.match(first, /lock\.test\.(js|ts):[0-9]+ in /, "the newest frame is the caller's");
    assert.doesNotMatch(String(metadata.backtrace), /client\.js|acquire\.js/);
    if (process.platform === "linux") assert.ok(metadata.boot_id && metadata.process_start && metadata.pid_namespace);
    return 42;
  });
  assert.equal(result, 42);
  assert.deepEqual(await recordOf("billing/invoice-run"), {});
});

test("work that would run after the release is refused", async () => {
  const pending = () => [1].map(() => new Promise(() => undefined));
  const refused = (kind: string) => (error: unknown) =>
    error instanceof RefusedError && error.message.startsWith(kind) && error.message.includes("without the lock");
  const functions: [string, () => unknown][] = [
    ["work is a generator function", function* () { yield 1; }],
    ["work is an async generator function", async function* () { yield await Promise.resolve(1); }],
    ["work returned a generator", () => (function* () { yield 1; })()],
    ["work returned an async generator", () => (async function* () { yield await Promise.resolve(1); })()],
    ["work returned an array of promises", pending],
    ["work returned an array of promises", () => Promise.resolve(pending())],
  ];
  for (const [n, [kind, work]] of functions.entries()) {
    await assert.rejects(locks.with("lazy", work), refused(kind), kind);
    await assert.rejects(locks.oncePer(`lazy job ${n}`, 3600, work), refused(kind), kind);
  }
  assert.deepEqual(await recordOf("lazy"), {});
  assert.deepEqual(await locks.with("lazy", () => Promise.all([1].map((n) => Promise.resolve(n)))), [1]);
});

test("a refusal says who holds the lock, since when, what for, and how many wait", async () => {
  const lock = await locks.lock("held", { purpose: "the first" });
  const held = await locks.lock("held", { wait: 0 }).then(() => assert.fail(), (error: unknown) => error);
  assert.ok(held instanceof HeldError && !(held instanceof WaitTimeoutError));
  assert.equal(held.holder?.uuid, lock.uuid);
  assert.equal(held.holder.token, lock.token);
  assert.equal(held.waiting, 0);
  const line = held.message;
  assert.match(line, /^lock "held" is held by "billing" on ".+" \(pid \d+\), taken \d+ [a-z]+ ago for "the first";/);
  assert.match(line, /; alert in \d+ [a-z]+, auto-unlock in \d+ minutes$/);

  const waiter = locks.lock("held");
  await eventually("a ticket", async () => (await ticketsOf("held")).length === 1);
  await assert.rejects(locks.lock("held", { wait: 0 }), /; 1 is waiting$/);
  const timeout = await locks.lock("held", { wait: 1 }).then(() => assert.fail(), (error: unknown) => error);
  assert.ok(timeout instanceof WaitTimeoutError && timeout instanceof HeldError);
  assert.match(timeout.message, /^gave up after 1 s: lock "held" is held by "billing"/);
  assert.equal(timeout.waiting, 1);
  await eventually("whoever gives up leaves the queue", async () => (await ticketsOf("held")).length === 1);
  await lock.release();
  await (await waiter).release();
});

test("hostile texts in a record are harmless in a message", async () => {
  const name = "evil\u202e";
  await etcd.put([`/mutexes/${name}/uuid`, "me"], [`/mutexes/${name}/owner`, "\u001b[2J\n<script>\u202e"]);
  await assert.rejects(locks.lock(name, { wait: 0 }), (error: Error) => {
    assert.doesNotMatch(error.message, /[\p{C}]/u);
    return error instanceof HeldError && error.holder?.uuid === "me";
  });
});

test("exclusion: a counter loses nothing", async () => {
  let [value, inside] = [0, 0];
  const work = async () => {
    for (let i = 0; i < 10; i++) {
      await locks.with("counter", async (lock) => {
        assert.equal(++inside, 1);
        const before = value;
        await lock.alive();
        value = before + 1;
        inside--;
      });
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  assert.equal(value, 40);
});

test("a wait is given up by a signal, and the queue is left", async () => {
  const lock = await locks.lock("abort");
  const stop = new AbortController();
  const waiter = locks.lock("abort", { signal: stop.signal });
  await eventually("a ticket", async () => (await ticketsOf("abort")).length === 1);
  stop.abort(new Error("shutting down"));
  await assert.rejects(waiter, /shutting down/);
  assert.deepEqual(await etcd.read("/mutexes/.queue/abort/"), {});
  await lock.release();
});

test("alive moves both deadlines, and shows the progress", async () => {
  const lock = await locks.lock("alive", { autoUnlockAfter: 60 });
  const before = await recordOf("alive");
  await lock.alive("3 of 9", { alertAfter: 500, autoUnlockAfter: 1000 });
  const after = await recordOf("alive");
  assert.match(after["/mutexes/alive/alive"] ?? "", /^\d{10}[.\d]* 3 of 9$/);
  const later = Number(after["/mutexes/alive/auto_unlock_at"]) - Number(before["/mutexes/alive/auto_unlock_at"]);
  assert.ok(later >= 939 && later < 1000, `${later} s`);
  await lock.alive();
  assert.match((await recordOf("alive"))["/mutexes/alive/alive"] ?? "", /^\d{10}[.\d]*$/);
  await lock.release();
  await lock.release();
  await assert.rejects(lock.alive(), /was released/);
  assert.equal(lock.lost, undefined);
  assert.equal(lock.signal.aborted, false, "a release is no loss");
});

test("a heartbeat extends the lock, and does not move the alert", async () => {
  const lock = await locks.lock("heartbeat", { heartbeat: true, autoUnlockAfter: 3, alertAfter: 4, margin: 0.1 });
  const first = await recordOf("heartbeat");
  const key = (name: string) => `/mutexes/heartbeat/${name}`;
  const later = await eventually("three heartbeats", async () => {
    const now = await recordOf("heartbeat");
    return Number(now[key("auto_unlock_at")]) > Number(first[key("auto_unlock_at")]) + 2.5 ? now : undefined;
  });
  assert.ok(Number(later[key("alert_at")]) <= Number(first[key("alert_at")]) + 1.001);
  assert.equal(lock.lost, undefined);
  await lock.release();
});

test("a heartbeat ends with the maximum hold", async () => {
  const lock = await locks.lock("longest", { heartbeat: 1, autoUnlockAfter: 0.6, alertAfter: 0.6 });
  await eventually("the loss", () => Promise.resolve(lock.lost));
  assert.match(String(lock.signal.reason), /its time ran out: its maximum hold of 1 s is over$/);
  await lock.release();
});

/** Takes a lock that tells of its loss. */
async function losing(name: string): Promise<[Lock, Promise<LostError>]> {
  let tell: (lost: LostError) => void;
  const lost = new Promise<LostError>((resolve) => tell = resolve);
  return [await locks.lock(name, { onLost: (error) => tell(error) }), lost];
}

test("a loss is noticed by the watch, with its reason", async () => {
  const [deleted, whenDeleted] = await losing("deleted");
  await etcd.remove("/mutexes/deleted/");
  assert.equal((await whenDeleted).reason, "deleted");
  assert.equal(deleted.lost, "deleted");
  assert.ok(deleted.signal.reason instanceof LostError);
  await assert.rejects(deleted.release(), LostError);

  const [forced, whenForced] = await losing("forced");
  const ending = { uuid: forced.uuid, token: Number(forced.token), ended: "forced", by: "ann", why: "it hangs" };
  await etcd.remove("/mutexes/forced/", [`/mutexes/.history/${forced.uuid}`, JSON.stringify(ending)]);
  const error = await whenForced;
  assert.deepEqual([error.reason, error.by, error.why], ["forced", "ann", "it hangs"]);
  assert.equal(error.message, 'lock "forced" was lost: an operator unlocked it ("ann"): "it hangs"');

  const [replaced, whenReplaced] = await losing("replaced");
  await etcd.put(["/mutexes/replaced/uuid", "another"]);
  assert.equal((await whenReplaced).reason, "replaced");
  await assert.rejects(replaced.alive("on"), (e: LostError) => e.reason === "replaced");
  await etcd.remove("/mutexes/replaced/");
});

test("work that was cut short by a loss ends with the LostError", async () => {
  const work = locks.with("cut short", async ({ signal, name }) => {
    await etcd.remove(`/mutexes/${name}/`);
    await sleep(60_000, undefined, { signal });
  });
  await assert.rejects(work, (error: LostError) => error instanceof LostError && error.reason === "deleted");
  const silent = locks.with("cut short", async ({ name }) => {
    await etcd.remove(`/mutexes/${name}/`);
  });
  await assert.rejects(silent, LostError, "work that did not notice");
  await assert.rejects(locks.with("cut short", () => { throw new TypeError("mine"); }), /^TypeError: mine$/);
  assert.deepEqual(await recordOf("cut short"), {});
});

test("the holder is asked to finish, once for each request that is meant for it", async () => {
  const asked: Request[] = [];
  const lock = await locks.lock("asked", { onAsked: (request) => asked.push(request) });
  const ask = (uuid: string, by: string) => etcd.put(["/mutexes/asked/asked", JSON.stringify(
    { uuid, token: Number(lock.token), by, reason: "the deploy waits", source: "cli", at: "1553682600" })]);
  await ask("another", "bob");
  await ask(lock.uuid, "ann");
  await eventually("a request", () => asked.length);
  assert.deepEqual(asked, [{ by: "ann", reason: "the deploy waits", source: "cli", at: new Date(1553682600e3) }]);
  assert.deepEqual(lock.asked, asked[0]);
  assert.equal(lock.lost, undefined);
  await ask(lock.uuid, "eve");
  await eventually("another request", () => lock.asked?.by === "eve");
  await lock.release();
});

test("a holder survives whatever others write into its record, and still gets requests", async () => {
  const asked: Request[] = [];
  const lock = await locks.lock("odd", { heartbeat: true, onAsked: (request) => asked.push(request) });
  const token = Number(lock.token);
  const note = { uuid: lock.uuid, token, by: "ann", reason: "now", source: "cli" };
  const key = (name: string) => `/mutexes/odd/${name}`;
  const odd = [
    Buffer.from([0xff, 0xfe, 0x00]), "[".repeat(900), JSON.stringify({ ...note, token: [] }),
    JSON.stringify({ ...note, token: String(token) }), JSON.stringify({ ...note, by: ["ann"] }),
    JSON.stringify({ ...note, at: "soon" }), JSON.stringify({ ...note, reason: "x".repeat(2048) }),
  ];
  for (const value of odd) {
    await etcd.put([key("asked"), value], [key("extended"), value], [key("alive"), value], [key("metadata"), value],
      [Buffer.concat([Buffer.from(key("")), Buffer.from([0xff])]), value]);
  }
  const far = "9999999999.9999";
  for (const seconds of ["[]", "1e999", "-1", String(Number.MAX_SAFE_INTEGER)]) {
    const extension = JSON.stringify({ ...note, seconds: 0 }).replace(/0}$/, `${seconds}}`);
    await etcd.put([key("extended"), extension], [key("auto_unlock_at"), far], [key("alert_at"), far]);
  }
  await etcd.put([key("asked"), JSON.stringify({ ...note, reason: "a\u001b[2J\ud800" })]);
  await eventually("a request", () => asked.length);
  assert.deepEqual(asked, [{ by: "ann", reason: "a\\u{1b}[2J\ufffd", source: "cli" }]);
  await lock.alive("on");
  await etcd.remove("/mutexes/odd/", [`/mutexes/.history/${lock.uuid}`, JSON.stringify(
    { uuid: lock.uuid, token, ended: "forced", by: "e\u202eve", why: "b\u001bc\ud800" })]);
  await eventually("a loss", () => lock.lost === "forced");
  const { by, why } = lock.signal.reason as LostError;
  assert.deepEqual([by, why], ["e\\u{202e}ve", "b\\u{1b}c\ufffd"]);
});

test("an operator's extension counts, and alive does not revert it", async () => {
  const lock = await locks.lock("more", { autoUnlockAfter: 30, alertAfter: 20 });
  const key = (name: string) => `/mutexes/more/${name}`;
  const old = Number((await recordOf("more"))[key("auto_unlock_at")]);
  const extension = JSON.stringify(
    { uuid: lock.uuid, token: Number(lock.token), by: "ann", seconds: 600, auto_unlock_at: String(old) });
  const [unlockAt, alertAt] = [String(Math.ceil(old) + 600), String(Math.ceil(old) + 500)];
  await etcd.put([key("extended"), extension], [key("auto_unlock_at"), unlockAt], [key("alert_at"), alertAt]);
  await lock.alive("on");
  const now = await recordOf("more");
  assert.equal(now[key("auto_unlock_at")], unlockAt);
  assert.equal(now[key("alert_at")], alertAt);
  assert.match(now[key("alive")] ?? "", / on$/);
  await lock.release();
});

test("a lock is released at the end of a block", async () => {
  {
    await using lock = await locks.lock("using");
    assert.equal((await recordOf("using"))["/mutexes/using/uuid"], lock.uuid);
  }
  assert.deepEqual(await recordOf("using"), {});
});

test("failing callbacks and promises that are not awaited do not end the process", async () => {
  const warnings: string[] = [];
  const hear = (warning: Error) => warnings.push(warning.message);
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("warning", hear).on("unhandledRejection", note);
  const lock = await locks.lock("quiet", { onLost: () => Promise.reject(new Error("oops")) });
  await etcd.remove("/mutexes/quiet/");
  void lock.alive("nobody waits");
  await eventually("a warning", () => warnings.some((text) => text.includes("onLost failed: Error: oops")));
  void lock.release();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", hear).off("unhandledRejection", note);
  assert.deepEqual(unhandled, []);
});

test("bad input is refused with a clear message before anything is sent", async () => {
  const nowhere = new Client("http://127.0.0.1:1");
  for (const [name, options, words] of [
    ["", {}, /lock name ""/],
    ["a\nb", {}, /without control characters/],
    ["a", { wait: -1 }, /wait is -1/],
    ["a", { alertAfter: 100, autoUnlockAfter: 10 }, /alertAfter \(100 s\)/],
    ["a", { autoUnlockAfter: 0.05, alertAfter: 0.01 }, /at least 0.1 s/],
    ["a", { margin: 900 }, /leaves nothing/],
    ["a", { heartbeat: 30, alertAfter: 60 }, /at most 30 s/],
    ["a", { autoUnlockAfter: NaN }, /autoUnlockAfter is NaN/],
    ["a", { autoUnlockAfter: 1e12 }, /autoUnlockAfter is 1000000000000; it must .*, ten years at most/],
    ["a", { purpose: "x".repeat(2000) }, /purpose has 2000 bytes/],
  ] as const) {
    await assert.rejects(nowhere.lock(name, options), (e: Error) => e instanceof RefusedError && words.test(e.message));
  }
  assert.throws(() => new Client([]), RefusedError);
  for (const endpoint of ["", "ftp://a", "http://", "a:b", "a:99999", "http://a?b", "http://a/#b", "a b", "a\u001b"]) {
    assert.throws(() => new Client(endpoint), /^RefusedError: endpoint "[ -~]*": want http:\/\/HOST:PORT or https:/);
  }
  for (const secret of ["http://ann:open@a", "ann:open@a:2379", "ann@a", "http:/ann:open@a", "https://ann:open@a/b"]) {
    assert.throws(() => new Client(secret), (error: Error) =>
      error.message === "an endpoint must not contain a user or password: give them as user and password");
  }
  assert.throws(() => new Client("http://127.0.0.1", { ca: "/nowhere" }), /certificates: ENOENT/);
});
