/** Several locks at once, all or none. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { acquire, aftermath, heldBy, isLate, maxRivals, withStays, type Wanted } from "./attempt.js";
import { take } from "./cleanup.js";
import { moment } from "./clock.js";
import { HeldError, RefusedError, UnavailableError, type Reason } from "./errors.js";
import type { Gateway } from "./gateway.js";
import { nobody } from "./kinds.js";
import { Lock } from "./lock.js";
import { fields, type Facts } from "./record.js";
import type { Settings } from "./settings.js";

const most = 24; // how many fit into one transaction of etcd

/** Several held locks. Each is a lock of its own. */
export class Locks {
  /** In the order of their names. */
  readonly all: readonly Lock[];

  constructor(all: readonly Lock[]) { this.all = all; }

  /** Why one of them was lost; undefined while all are held. */
  get lost(): Reason | undefined { return this.all.find((lock) => lock.lost)?.lost; }

  /** Reports progress for each lock. */
  async alive(progress = ""): Promise<void> { await Promise.all(this.all.map((lock) => lock.alive(progress))); }

  /** Releases all of them. Rejects like {@link Lock.release}, with the first error. */
  async release(): Promise<void> {
    const done = await Promise.allSettled(this.all.map((lock) => lock.release()));
    for (const one of done) if (one.status === "rejected") throw one.reason;
  }

  [Symbol.asyncDispose](): Promise<void> { return this.release(); }
}

/** Takes them in one transaction, or one after the other if that needs a wait or does not fit. @internal */
export async function takeAll(gateway: Gateway, wanted: Wanted[], settings: Settings): Promise<Locks> {
  const { wait } = settings;
  wanted.sort((a, b) => Buffer.compare(Buffer.from(a.k.lock), Buffer.from(b.k.lock)));
  const names = wanted.map(({ k }) => k.lock);
  if (!names.length || new Set(names).size < names.length) {
    throw new RefusedError("no lock was given, or one was given twice");
  }
  const fits = names.length <= most && !wanted.some(({ settings }) => settings.need.kind);
  if (wait === 0 && !fits) {
    throw new RefusedError(`with wait: 0 they are taken in one transaction, which has room for ${most} plain locks`);
  }
  const all = wanted.map((one) => ({ ...one, facts: withOthers(one.facts, names, one.k.lock) }));
  const end = performance.now() + wait;
  let refusal: HeldError | undefined;
  try {
    if (fits) return new Locks(await atOnce(gateway, all, settings));
  } catch (error) {
    const mayWait = error instanceof HeldError || error instanceof UnavailableError;
    if (!mayWait || wait === 0) throw error;
    if (error instanceof HeldError && wait < Infinity) refusal = error;
  }
  return new Locks(await inOrder(gateway, all, settings, end).catch((error: unknown) => {
    throw refusal && error instanceof UnavailableError ? refusal : error;
  }));
}

async function atOnce(gateway: Gateway, wanted: Wanted[], { wait, signal }: Settings): Promise<Lock[]> {
  const began = moment();
  const locks = wanted.map(({ k, settings, facts }) => {
    const uuid = randomUUID();
    return { k, settings, lock: k.lock, uuid, fields: fields(uuid, facts, began.wall, settings) };
  });
  const [{ k }] = wanted as [Wanted];
  const life = Math.min(...wanted.map(({ settings }) => settings.autoUnlockAfter));
  const patience = { until: performance.now() + Math.min(gateway.timeout * 1000, life / 3, wait || Infinity), signal };
  const taken = await take(gateway, k.prefix, locks, async () => {
    let r = await gateway.transact("acquire_all", k, { lock: k.lock, uuid: "", locks }, patience);
    for (let rivals = 0; r.verdict === "again" && !r.doubt && rivals < maxRivals; rivals++) {
      const counted = r.holders?.revision ?? "0"; // no lock has shares, but others have such names
      const again = locks.map((one) => ({ ...one, counted }));
      r = await gateway.transact("acquire_all", k, { lock: k.lock, uuid: "", locks: again }, patience);
    }
    if (!r.token || !wanted.some(({ settings }) => isLate(began, settings))) return r;
    return { ...r, token: "", doubt: true, error: new UnavailableError("etcd answered too late") };
  });
  const { token, doubt, lock = k.lock, holders = nobody, handedOver } = taken;
  if (!token) {
    const refusal = await withStays(gateway, k, { holders, waiting: 0 });
    throw heldBy(lock, {}, refusal, wait ? wait / 1000 : undefined);
  }
  const hold = { token, began, queued: false, doubt, share: 0, handedOver };
  return locks.map((one) => Lock.of(gateway, one, { ...hold, uuid: one.uuid }));
}

/** Takes one lock after the other, and extends what it has while it waits. */
async function inOrder(
  gateway: Gateway, wanted: Wanted[], { signal: given }: Settings, end: number,
): Promise<Lock[]> {
  const taken: Lock[] = [];
  const stop = new AbortController();
  const signal = given ? AbortSignal.any([given, stop.signal]) : stop.signal;
  const done = new AbortController();
  try {
    for (const one of wanted) {
      for (const lock of taken) lock.waitsFor(one.k.lock);
      const settings = { ...one.settings, signal, giveUpAt: end };
      const lock = Lock.of(gateway, one, await acquire(gateway, { ...one, settings }));
      taken.push(lock);
      lock.signal.addEventListener("abort", () => stop.abort(lock.signal.reason));
      void lock.keep(done.signal);
    }
    await within(end, Promise.all(taken.map((lock) => lock.alive())));
    return taken;
  } catch (error) {
    const released = Promise.allSettled(taken.map((lock) => lock.release())); // if necessary, it goes on by itself
    await within(end + aftermath, released).catch(() => undefined);
    throw error;
  } finally {
    done.abort();
  }
}

/** Waits for work until a time of performance.now(). */
async function within(end: number, work: Promise<unknown>) {
  const done = new AbortController();
  const milliseconds = Math.min(Math.max(end - performance.now(), 0), 2 ** 31 - 1);
  const tooLate = sleep(milliseconds, undefined, done).then(() => {
    throw new UnavailableError("etcd did not answer in time");
  });
  await Promise.race([work, tooLate]).finally(() => done.abort());
}

/** Names in the record of one lock the others that are taken with it, as far as there is room. */
function withOthers(facts: Facts, names: string[], name: string): Facts {
  const others = names.filter((other) => other !== name);
  if (!others.length) return facts;
  const full = others.findIndex((_, n) => Buffer.byteLength(others.slice(0, n + 1).join(", ")) > 1000);
  const more = full < 0 ? "" : ` and ${others.length - full} more`;
  const together_with = others.slice(0, full < 0 ? undefined : full).join(", ") + more;
  return { ...facts, attributes: { together_with, ...facts.attributes } };
}
