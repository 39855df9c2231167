/** Jobs that run once for each tick among all replicas: whoever writes the tick first has it. */

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import { heldBy, withStays, type Hold, type Wanted } from "./attempt.js";
import { take, warn, withTombstone } from "./cleanup.js";
import { moment } from "./clock.js";
import { RefusedError, UnavailableError } from "./errors.js";
import type { Gateway } from "./gateway.js";
import { countedIn, nobody } from "./kinds.js";
import { asText, dateOf, fields, formatTime, parseObject, plain, visible } from "./record.js";
import { text, type Keys } from "./transactions.js";
import { Reading } from "./verdicts.js";

const longest = 10 * 365 * 86400; // seconds
const tolerance = 30_000; // milliseconds that clocks may differ before a call fails
const presence = 15_000;

/** When the period of a time began, in milliseconds. Throws a RefusedError if the arguments are out of range. */
export function began(now: number, every: number, offset: number): number {
  if (!(every >= 1 && every <= longest)) throw new RefusedError(`the period is ${every} s; want 1 s to ten years`);
  if (!(offset >= 0 && offset < every)) throw new RefusedError(`the offset is ${offset} s; want less than the period`);
  return now - (now - Math.round(offset * 1000)) % Math.round(every * 1000);
}

/** How a call gets its tick. `word` is the attribute of the record, `at` the tick at a time of this machine's clock. */
export interface Ticks { word: string; at: (now: number) => number; note: string }

/** The ticks at which periods begin. */
export function periods(every: number, offset: number): Ticks {
  began(0, every, offset);
  return { word: "period", at: (now) => began(Math.floor(now), every, offset), note: `, every ${every} s` };
}

/** A tick of a schedule. Throws a RefusedError if it is not a time. */
export function scheduled(tick: Date): Ticks {
  const time = tick instanceof Date ? tick.getTime() : NaN;
  if (!(time >= 0 && time < 1e13)) throw new RefusedError(`the tick is ${String(tick)}; want a Date since 1970`);
  const at = (now: number) => {
    if (time <= now + tolerance) return time;
    throw new RefusedError(`the tick of ${instant(time)} has not come: this machine's clock says ${instant(now)}`);
  };
  return { word: "tick", at, note: "" };
}

/** A hold with the previous value of the key of the last tick. */
export interface Taken extends Hold { before: string }

/** Takes the tick and the lock in one transaction; undefined if the tick, or a later one, is taken. */
export async function takeTick(
  gateway: Gateway, { k, settings, facts }: Wanted, ticks: Ticks,
): Promise<Taken | undefined> {
  if (settings.need.kind) throw new RefusedError("a job needs a plain lock, not a semaphore or a read-write lock");
  const patience = { until: performance.now() + gateway.timeout * 1000 };
  let counted = "0";
  for (;;) {
    const at = moment();
    const tick = ticks.at(at.wall);
    const uuid = randomUUID();
    const input = { lock: k.lock, uuid };
    const read = await gateway.transact("read_period", k, input, patience);
    if (read.error) throw read.error;
    const found = new Reading(k, input, read.body);
    if (!isDue(k, found, tick, at.wall)) return undefined;
    const by = `${visible(String(facts.members.owner))} on ${visible(hostname())}`;
    const taken = `${formatTime(tick)} taken ${instant(at.wall)} by ${by}${ticks.note}`;
    const all = { ...facts, attributes: { [ticks.word]: instant(tick), ...facts.attributes } };
    const record = fields(uuid, all, at.wall, settings);
    const last = found.get(k.period);
    const seen = last?.mod_revision ?? "0";
    const { token, verdict, holders = nobody, handedOver } = await take(gateway, k.prefix, [input], async () => {
      const once = { ...input, fields: record, seen, taken, counted };
      const r = await gateway.transact("acquire_once", k, once, patience);
      return r.doubt ? settleOutcome(gateway, k, uuid) : r; // a late commit would write the tick again
    });
    const hold = { uuid, began: at, queued: false, doubt: false, share: 0, handedOver };
    if (token) return { ...hold, token, before: text(last?.value) };
    if (verdict === "refused") throw heldBy(k.lock, {}, await withStays(gateway, k, { holders, waiting: 0 }));
    counted = countedIn(holders, counted);
    if (performance.now() > patience.until) throw new UnavailableError(`the tick of ${plain(k.lock)} keeps changing`);
    await sleep(20 + 80 * Math.random());
  }
}

/** Lets the next call run the job. No other call can take the tick while the lock is held. */
export async function giveTickBack(gateway: Gateway, k: Keys, { uuid, token, before }: Taken) {
  const input = { lock: k.lock, uuid, token, taken: before };
  const { error } = await gateway.transact("restore_period", k, input, { until: performance.now() + 15_000 });
  if (error) warn("giving a tick back", error);
}

/** Finds out the outcome of an unanswered request, and keeps it from being committed later. */
async function settleOutcome(gateway: Gateway, k: Keys, uuid: string) {
  const patience = { until: performance.now() + 15_000 };
  const send = (lease: string) => gateway.transact("settle", k, { lock: k.lock, uuid, lease }, patience);
  const r = await withTombstone(gateway, patience, "settle", send);
  return { ...r, doubt: r.error !== undefined };
}

/** Reports whether the tick is still to be taken. Throws a RefusedError if a clock is wrong. */
function isDue(k: Keys, found: Reading, tick: number, now: number): boolean {
  const value = found.get(k.period);
  const refuse = (why: string) => new RefusedError(`once ${plain(k.lock)}: ${why}`);
  if (value) {
    const [time = "", ...note] = text(value.value).split(" ");
    const last = dateOf(time)?.getTime();
    if (!last) throw refuse(`the last tick cannot be read: ${plain(time)}`);
    if (tick <= last && last > now + tolerance) {
      throw refuse(`the run of ${instant(last)} is ahead of this machine's clock, and it was ` +
        `${plain(note.join(" "))}; no earlier one runs unless its key ${k.period} is deleted`);
    }
    if (tick <= last) return false;
  }
  const clocks = found.room(".unlockers").filter((kv) => kv.lease) // without one it may be stale
    .map((kv) => dateOf(asText(parseObject(text(kv.value)).now))?.getTime() ?? 0);
  const latest = Math.max(0, ...clocks);
  if (!latest || tick <= latest + presence + tolerance) return true;
  throw refuse(`by the clock of an unlocker it is ${instant(latest)}, so the run of ${instant(tick)} is not due`);
}

const instant = (at: number) => new Date(at).toISOString();
