/** Taking a lock: at once, or by waiting in its queue. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { finish, tombstoneTTL, type Cleanup } from "./cleanup.js";
import { moment, monotonic, type Moment } from "./clock.js";
import { Causes } from "./endpoint.js";
import { HeldError, RefusedError, UnavailableError, WaitTimeoutError } from "./errors.js";
import type { Gateway, Outcome, Patience } from "./gateway.js";
import { under } from "./identity.js";
import { allOf, claimOf, countedIn, delayFor, nobody, type Holders, type Need } from "./kinds.js";
import { fields, formatTime, type Facts } from "./record.js";
import type { Settings } from "./settings.js";
import { watchedFor } from "./shares.js";
import type { Input, Keys, Step } from "./transactions.js";
import type { Watch } from "./watch.js";

/** A lock and its options. */
export interface Wanted { k: Keys; settings: Settings; facts: Facts }

/** The result of a successful attempt. */
export interface Hold {
  uuid: string;
  token: string;
  /** When the deadlines in the record begin: before the transaction that took the lock was sent. */
  began: Moment;
  /** The lock was acquired through the queue. */
  queued: boolean;
  /** A request got no answer: the attempt has to be cancelled when the hold ends. */
  doubt: boolean;
  /** The share that it took; 0 for the lock itself. */
  share: number;
  /** From now on, the lock cleans up after itself. */
  handedOver: () => void;
}

type Taken = Omit<Hold, "handedOver">;

const ticketTTL = 10; // seconds
const recheck = 10_000; // milliseconds until a waiter looks without an event
export const aftermath = 250; // milliseconds for the rest of a call whose time is over
export const maxRivals = 3; // immediate retries if others claim shares at the same time
const longestCleanup = 2000; // milliseconds before the next attempt of a call

/** Who holds a lock that was refused, how many wait, and whether nothing removes an overdue hold, as last read. */
interface Refusal { holders: Holders; waiting: number; stays?: boolean }

/** The error that says who holds the lock; with `seconds`, the one for the end of a wait. */
export function heldBy(
  lock: string, need: Need, { holders, waiting, stays = false }: Refusal, seconds?: number,
): HeldError {
  const [all, delay] = [allOf(holders), delayFor(holders, need)];
  return seconds === undefined
    ? new HeldError(lock, all, waiting, delay, stays)
    : new WaitTimeoutError(lock, all, waiting, delay, stays, seconds);
}

/** Adds whether the time of a holder is over but no unlocker is running; if etcd does not answer, it is not. */
export async function withStays(gateway: Gateway, k: Keys, refusal: Refusal): Promise<Refusal> {
  const isOver = allOf(refusal.holders).some(({ unlockAt }) => unlockAt && unlockAt.getTime() < Date.now());
  if (!isOver) return refusal;
  const patience = { until: performance.now() + aftermath };
  const { verdict, body } = await gateway.transact("read_period", k, { lock: k.lock, uuid: "" }, patience);
  const isRunning = body.responses?.[1]?.response_range?.kvs?.some((kv) => kv.lease);
  return { ...refusal, stays: verdict === "answered" && !isRunning };
}

/** Reports whether half of a hold's time is already over: the machine slept, or the answer took that long. */
export const isLate = (began: Moment, { autoUnlockAfter, margin }: Settings) =>
  monotonic() - began.monotonic > (autoUnlockAfter - margin) / 2;

/** One call: its time limits, and what its attempts have learned. */
class Call {
  /** When it stops waiting, and when it stops asking. */
  readonly giveUpAt: number;
  readonly began = Date.now();
  readonly lastSend: number;
  readonly causes = new Causes();
  refusal: Refusal | undefined;
  #endedAt = Infinity;
  #isSilent = false; // etcd no longer answers

  constructor({ wait, giveUpAt }: Settings, timeout: number) {
    const now = performance.now();
    this.giveUpAt = giveUpAt ?? now + wait;
    this.lastSend = wait === 0 ? now + timeout * 1000 : this.giveUpAt;
  }

  get isOver() { return performance.now() >= this.lastSend; }

  /** Marks the call as failed: no more attempts, and cleanup may delay the caller only briefly. */
  end(error?: unknown) {
    this.#endedAt = Math.min(this.#endedAt, performance.now());
    this.#isSilent ||= error instanceof UnavailableError;
  }

  /** When the call must return at the latest. */
  get answerBy() { return Math.min(this.#endedAt, this.lastSend) + (this.#isSilent ? 0 : aftermath); }

  /** Prefers the error that says who holds the lock over one that etcd fell silent afterwards. */
  failure(lock: string, { need, wait }: Settings, error: unknown): unknown {
    const isKnown = error instanceof UnavailableError && this.refusal;
    return isKnown ? heldBy(lock, need, isKnown, wait / 1000) : error;
  }
}

/** Takes the lock, with a new attempt whenever an attempt's outcome or position was lost. */
export async function acquire(gateway: Gateway, wanted: Wanted): Promise<Hold> {
  const { k, settings } = wanted;
  const call = new Call(settings, gateway.timeout);
  for (;;) {
    settings.signal?.throwIfAborted();
    const attempt = new Attempt(gateway, wanted, call);
    const handedOver = gateway.atExit(() => attempt.cleanup);
    let hold: Taken | undefined;
    try {
      hold = await attempt.take();
      if (hold) return { ...hold, handedOver };
    } catch (error) {
      call.end(error);
      throw call.failure(k.lock, settings, error);
    } finally {
      await attempt.end(hold !== undefined);
      if (!hold) handedOver();
    }
    await sleep(50 + 100 * Math.random());
  }
}

class Attempt {
  private readonly gateway: Gateway;
  private readonly k: Keys;
  private readonly settings: Settings;
  private readonly facts: Facts;
  private readonly call: Call;
  readonly #uuid = randomUUID();
  #doubt = false; // a request that may take the lock got no answer
  #taking = false; // such a request has no answer yet, or took the lock
  #lease = "";
  #position = "";
  #holders = nobody; // as last read
  #counted = "0"; // of a plain lock: when a refusal last showed no shares
  #before: string | undefined; // the ticket ahead; empty: none; undefined: not known

  constructor(gateway: Gateway, { k, settings, facts }: Wanted, call: Call) {
    [this.gateway, this.k, this.settings, this.facts, this.call] = [gateway, k, settings, facts, call];
  }

  /** Returns undefined if this attempt can no longer succeed, but another one may. */
  async take(): Promise<Taken | undefined> {
    const { wait, need } = this.settings;
    for (let rivals = 0; ; rivals++) {
      const began = moment();
      const input = this.#input({ fields: this.#record(began), ...this.#claim(rivals) });
      const r = await this.#send(wait === 0 ? "acquire" : "try", input, began);
      if (r.verdict === "held" || r.verdict === "held_by_earlier_send") return this.#hold(r, input, began, false);
      if (r.verdict === "unanswered") return this.#mayGoOn(r);
      this.#noteHolders(r);
      this.call.refusal = { holders: this.#holders, waiting: 0 };
      const again = r.verdict === "again" && !this.#doubt && (rivals < maxRivals || (wait === 0 && !this.call.isOver));
      if (!again) break;
      if (rivals >= maxRivals) await sleep(10 + 90 * Math.random());
    }
    if (wait === 0) throw heldBy(this.k.lock, need, await this.#surveyed(this.call.refusal, true));
    if (this.#doubt) return undefined; // a late claim could add a second share, or have outdated deadlines
    return this.#queue();
  }

  #noteHolders({ holders = nobody }: Outcome) {
    this.#holders = holders;
    this.#counted = countedIn(holders, this.#counted);
  }

  /** What to claim. Readers need only a number of their own. */
  #claim(rivals = 0): Partial<Input> {
    const { need } = this.settings;
    const spread = need.kind === "shared" && rivals > 1 ? Math.floor(Math.random() * 2 ** Math.min(rivals, 6)) : 0;
    return need.kind ? claimOf(this.#holders, need, spread) : { counted: this.#counted };
  }

  /** Sends a transaction that may take the lock. */
  async #send(step: Step, input: Input, began: Moment): Promise<Outcome> {
    this.#taking = true;
    const r = await this.gateway.transact(step, this.k, input, this.#patience(began));
    this.#taking = r.verdict === "held" || r.verdict === "held_by_earlier_send";
    this.#doubt ||= r.doubt;
    return r;
  }

  #input(more: Partial<Input> = {}): Input {
    return { lock: this.k.lock, uuid: this.#uuid, ...this.settings.need, ...more };
  }

  #record({ wall }: Moment) {
    return fields(this.#uuid, this.facts, wall, this.settings);
  }

  /** When to stop sending a record: after a third of its life, or when the caller's wait is over. */
  #patience(began?: Moment): Patience {
    const most = performance.now() + (began ? this.settings.autoUnlockAfter / 3 : recheck);
    return { until: Math.min(most, this.call.lastSend), signal: this.settings.signal, causes: this.call.causes };
  }

  #hold({ token, share }: Outcome, input: Input, began: Moment, queued: boolean): Taken | undefined {
    if (isLate(began, this.settings)) {
      this.#doubt = true; // release and start again
      return undefined;
    }
    const taken = { token: token ?? "0", share: share ?? input.share ?? 0 };
    return { uuid: this.#uuid, ...taken, began, queued, doubt: this.#doubt };
  }

  /** Throws if the acquisition is refused, given up or out of time; otherwise another attempt follows. */
  #mayGoOn({ error }: Outcome): Taken | undefined {
    this.settings.signal?.throwIfAborted();
    if (error instanceof RefusedError || (error && this.call.isOver)) throw error;
    return undefined;
  }

  async #surveyed(refusal: Refusal, counts: boolean): Promise<Refusal> {
    return withStays(this.gateway, this.k, await this.#survey(refusal, counts));
  }

  /** Reads who holds the lock, how many wait, and its lock delay. Keeps the holders from the refusal if they count. */
  async #survey(refusal: Refusal, counts: boolean): Promise<Refusal> {
    this.call.end();
    const r = await this.gateway.transact("survey", this.k, this.#input(), { until: this.call.answerBy });
    const { holders = nobody, waiting = 0 } = r;
    if (r.verdict !== "answered") return refusal;
    const isKnown = counts && (allOf(refusal.holders)[0] ?? delayFor(refusal.holders, this.settings.need));
    return { holders: isKnown ? refusal.holders : holders, waiting };
  }

  async #queue(): Promise<Taken | undefined> {
    const lease = await this.gateway.call("/v3/lease/grant", { TTL: String(ticketTTL) }, this.#patience());
    if (lease.verdict === "unanswered") return this.#mayGoOn(lease);
    this.#lease = String(lease.body.ID);
    const input = this.#input({ ticket: this.#ticket(), lease: this.#lease });
    const joined = await this.gateway.transact("join", this.k, input, this.#patience());
    if (joined.verdict === "unanswered") return this.#mayGoOn(joined);
    if (!joined.position) return undefined; // cancelled, or the lease is gone
    this.#position = joined.position;
    this.#before = joined.before;
    const left = new AbortController();
    let watch: Watch | undefined;
    this.#keepTicket(left.signal, () => watch?.wake()).catch(() => undefined);
    try {
      return await this.#await((next) => { watch?.close(); watch = next; });
    } finally {
      left.abort();
      watch?.close();
    }
  }

  #ticket(): string {
    const { owner, hostname, pid, purpose } = this.facts.members;
    const since = formatTime(this.call.began);
    const left = this.call.giveUpAt - performance.now();
    const timeout_at = left === Infinity ? undefined : formatTime(Date.now() + left);
    return JSON.stringify({ uuid: this.#uuid, owner, hostname, pid, purpose, since, timeout_at, under: under() });
  }

  /** Keeps the lease alive while the attempt waits. If the lease is gone, so is the position: calls `gone`. */
  async #keepTicket(signal: AbortSignal, gone: () => void) {
    const pause = ticketTTL * 1000 / 3;
    for (let lost = false; !lost && !signal.aborted;) {
      await sleep(pause, undefined, { signal });
      const patience = { until: performance.now() + pause, signal };
      const r = await this.gateway.call("/v3/lease/keepalive", { ID: this.#lease }, patience);
      const { TTL } = (r.body.result ?? {}) as { TTL?: string };
      lost = r.verdict === "lease" || (r.verdict === "answered" && !TTL);
    }
    gone();
  }

  /** Looks and waits for the key ahead to go, until the lock is held or the position is lost. */
  async #await(use: (watch: Watch) => void): Promise<Taken | undefined> {
    let watch: Watch | undefined;
    let watched = "";
    let quiet = 0;
    for (;;) {
      const r = await this.#look();
      const older = r.restore;
      if (older) await this.gateway.transact("restore_tail", this.k, this.#input({ older }), this.#patience());
      if (r.verdict === "lost" || r.verdict === "held_by_earlier_send") return undefined;
      this.settings.signal?.throwIfAborted();
      if (r.error instanceof RefusedError) throw r.error;
      const left = this.call.giveUpAt - performance.now();
      if (left <= 0) await this.#giveUp();
      const next = r.verdict === "turn" ? await this.#turn() : r.watch ?? "";
      if (typeof next !== "string") return next;
      if (next && next === watched && watch && !watch.ended && quiet < 6) {
        quiet = (await watch.next(Math.min(recheck, left))).length ? 0 : quiet + 1;
      } else if (next) { // another key, or the watch may have fallen silent
        [watched, quiet] = [next, 0];
        watch = await this.#watch(watched);
        if (watch) use(watch);
      }
    }
  }

  /** Scans the queue only if the ticket ahead is not known. */
  async #look(): Promise<Outcome> {
    const input = this.#input({ position: this.#position, before: this.#before });
    const step = this.#before === undefined ? "scan" : "look";
    const r = await this.gateway.transact(step, this.k, input, this.#patience());
    if (r.verdict !== "unanswered") [this.#before, this.#holders] = [r.before, r.holders ?? nobody];
    return r;
  }

  async #giveUp(): Promise<never> {
    const refusal = await this.#surveyed(this.call.refusal ?? { holders: nobody, waiting: 0 }, false);
    throw heldBy(this.k.lock, this.settings.need, refusal, this.settings.wait / 1000);
  }

  /** Takes the lock, or returns the key to wait for, empty to look again. */
  async #turn(): Promise<Taken | string | undefined> {
    const began = moment();
    const input = this.#input({ position: this.#position, fields: this.#record(began), ...this.#claim() });
    const r = await this.#send("turn", input, began);
    if (r.verdict === "held" || r.verdict === "held_by_earlier_send") return this.#hold(r, input, began, true);
    if (r.error instanceof RefusedError) throw r.error;
    this.#noteHolders(r);
    const isFirst = r.verdict === "again" || r.verdict === "wait";
    return isFirst && !r.doubt ? r.watch ?? "" : undefined; // an unanswered turn has outdated deadlines
  }

  /** Watches for the deletion of a key and of this attempt's ticket. */
  async #watch(key: string): Promise<Watch | undefined> {
    try {
      return await this.gateway.watch(watchedFor(this.k, this.#input(), key), this.#patience());
    } catch (error) {
      if (error instanceof RefusedError) throw error;
      await sleep(100 + 400 * Math.random());
      return undefined;
    }
  }

  /** What to clean up if the process ends now. */
  get cleanup(): Cleanup { return this.#cleanup({ doubt: this.#doubt || this.#taking }); }

  #cleanup(more: Partial<Cleanup>): Cleanup {
    const waiting = this.#lease !== "";
    const input = this.#input({ queued: waiting });
    return { prefix: this.k.prefix, input, doubt: this.#doubt, lease: this.#lease, waiting, ...more };
  }

  /** Removes everything of the attempt except its hold. */
  async end(held: boolean) {
    const cleanup = held ? this.#cleanup({ doubt: false, waiting: false }) : this.#cleanup({});
    if (!this.#lease && !cleanup.doubt) return;
    const foreground = Math.min(longestCleanup, this.call.answerBy - performance.now());
    await finish(this.gateway, cleanup, held ? 0 : foreground, cleanup.doubt ? tombstoneTTL : ticketTTL);
  }
}
