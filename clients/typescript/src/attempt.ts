/** How a lock is taken: at once, or by waiting in its queue. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { finish, tombstoneTTL, type Cleanup } from "./cleanup.js";
import { moment, monotonic, type Moment } from "./clock.js";
import { Causes } from "./endpoint.js";
import { HeldError, RefusedError, UnavailableError, WaitTimeoutError } from "./errors.js";
import type { Gateway, Outcome, Patience } from "./gateway.js";
import { allOf, claimOf, delayFor, nobody, type Holders, type Need } from "./kinds.js";
import { fields, formatTime, type Facts } from "./record.js";
import type { Settings } from "./settings.js";
import { watchedFor } from "./shares.js";
import type { Input, Keys, Step } from "./transactions.js";
import type { Watch } from "./watch.js";

/** A lock as its caller wants it. */
export interface Wanted { k: Keys; settings: Settings; facts: Facts }

/** What an attempt got. */
export interface Hold {
  uuid: string;
  token: string;
  /** Before the transaction that took the lock was sent. The deadlines in the record count from then. */
  began: Moment;
  /** The lock was got by waiting. */
  queued: boolean;
  /** A send got no answer: the hold has to be cancelled when it ends. */
  doubt: boolean;
  /** Whose record it has; 0 is that of the lock. */
  share: number;
  /** The lock looks after itself from now on. */
  handedOver: () => void;
}

type Taken = Omit<Hold, "handedOver">;

const ticketTTL = 10; // seconds
const recheck = 10_000; // milliseconds until a waiter looks although its watch is silent
const aftermath = 250; // milliseconds for what follows when the time of a call is over
const maxRivals = 3; // how often a share is claimed at once past others who claim one at the same time
const longestCleanup = 2000; // milliseconds before the next attempt of a call

/** Who holds a lock that was refused, and how many wait, as it was read last. */
interface Refusal { holders: Holders; waiting: number }

/** The error that says who is in the way; with `seconds` it is the end of a wait. */
export function heldBy(lock: string, need: Need, { holders, waiting }: Refusal, seconds?: number): HeldError {
  const [all, delay] = [allOf(holders), delayFor(holders, need)];
  return seconds === undefined
    ? new HeldError(lock, all, waiting, delay) : new WaitTimeoutError(lock, all, waiting, delay, seconds);
}

/** One call: how long it may take, and what it learned from its attempts. */
class Call {
  /** When it stops waiting, and when it stops asking. */
  readonly giveUpAt: number;
  readonly lastSend: number;
  readonly causes = new Causes();
  refusal: Refusal | undefined;
  #endedAt = Infinity;
  #isSilent = false; // nothing more is to be expected of etcd

  constructor({ wait }: Settings, timeout: number) {
    const now = performance.now();
    this.giveUpAt = now + wait;
    this.lastSend = wait === 0 ? now + timeout * 1000 : this.giveUpAt;
  }

  get isOver() { return performance.now() >= this.lastSend; }

  /** It has failed: no more attempts, and what remains to be done delays the caller for a moment only. */
  end(error?: unknown) {
    this.#endedAt = Math.min(this.#endedAt, performance.now());
    this.#isSilent ||= error instanceof UnavailableError;
  }

  /** When the caller has its answer at the latest. */
  get answerBy() { return Math.min(this.#endedAt, this.lastSend) + (this.#isSilent ? 0 : aftermath); }

  /** Who was in the way says more than that etcd fell silent afterwards. */
  failure(lock: string, { need, wait }: Settings, error: unknown): unknown {
    const isKnown = error instanceof UnavailableError && this.refusal;
    return isKnown ? heldBy(lock, need, isKnown, wait / 1000) : error;
  }
}

/** Takes the lock, with a new attempt whenever the outcome or the position of one was lost. */
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
  #doubt = false; // a send that may take the lock got no answer
  #taking = false; // such a send has no answer yet, or took the lock
  #lease = "";
  #position = "";
  #holders = nobody; // of a lock that several can hold, as they were read last
  #before: string | undefined; // the ticket ahead, empty for the first; undefined: not known

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
      this.#holders = r.holders ?? nobody;
      this.call.refusal = { holders: this.#holders, waiting: 0 };
      const again = r.verdict === "again" && !this.#doubt && (rivals < maxRivals || (wait === 0 && !this.call.isOver));
      if (!again) break;
      if (rivals >= maxRivals) await sleep(10 + 90 * Math.random());
    }
    if (wait === 0) throw heldBy(this.k.lock, need, await this.#survey(this.call.refusal, true));
    if (this.#doubt) return undefined; // a late claim could stand beside the one in its turn, or have older times
    return this.#queue();
  }

  /** What of a lock that several can hold is to be claimed. Readers need no count, only a number of their own. */
  #claim(rivals = 0): Partial<Input> {
    const { need } = this.settings;
    const spread = need.kind === "shared" && rivals > 1 ? Math.floor(Math.random() * 2 ** Math.min(rivals, 6)) : 0;
    return need.kind ? claimOf(this.#holders, need, spread) : {};
  }

  /** Sends what may take the lock. */
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

  /** A record is sent again for a third of its life, and no longer than the caller waits. */
  #patience(began?: Moment): Patience {
    const most = performance.now() + (began ? this.settings.unlockAfter / 3 : recheck);
    return { until: Math.min(most, this.call.lastSend), signal: this.settings.signal, causes: this.call.causes };
  }

  #hold({ token, share }: Outcome, input: Input, began: Moment, queued: boolean): Taken | undefined {
    const { unlockAfter, margin } = this.settings;
    if (monotonic() - began.monotonic > (unlockAfter - margin) / 2) {
      this.#doubt = true; // etcd took so long that half of the time is over: give the lock back, and begin again
      return undefined;
    }
    const taken = { token: token ?? "0", share: share ?? input.share ?? 0 };
    return { uuid: this.#uuid, ...taken, began, queued, doubt: this.#doubt };
  }

  /** Throws if the acquisition is refused, given up or out of time. Otherwise another attempt follows. */
  #mayGoOn({ error }: Outcome): Taken | undefined {
    this.settings.signal?.throwIfAborted();
    if (error instanceof RefusedError || (error && this.call.isOver)) throw error;
    return undefined;
  }

  /** Who holds the lock, how many others wait, and what delays it. What the refusal itself said stays, if it counts. */
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
    const now = Date.now();
    const left = this.call.giveUpAt - performance.now();
    const timeout_at = left === Infinity ? undefined : formatTime(now + left);
    return JSON.stringify({ uuid: this.#uuid, owner, hostname, pid, purpose, since: formatTime(now), timeout_at });
  }

  /** Keeps the lease alive while the attempt waits. When it is gone, so is the position: `gone` has it looked at. */
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

  /** Looks, waits for what is ahead to go, and looks again, until the lock is held or the position is lost. */
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
      if (r.verdict === "turn") {
        const turn = await this.#turn();
        if (turn !== "again") return turn;
      } else if (r.watch && r.watch === watched && watch && !watch.ended && quiet < 6) {
        quiet = (await watch.next(Math.min(recheck, left))).length ? 0 : quiet + 1;
      } else if (r.watch) { // another key, or the watch may have fallen silent
        [watched, quiet] = [r.watch, 0];
        watch = await this.#watch(watched);
        if (watch) use(watch);
      }
    }
  }

  /** Scans the queue only where it does not know who is ahead. */
  async #look(): Promise<Outcome> {
    const input = this.#input({ position: this.#position, before: this.#before });
    const step = this.#before === undefined ? "scan" : "look";
    const r = await this.gateway.transact(step, this.k, input, this.#patience());
    if (r.verdict !== "unanswered") [this.#before, this.#holders] = [r.before, r.holders ?? nobody];
    return r;
  }

  async #giveUp(): Promise<never> {
    const refusal = await this.#survey(this.call.refusal ?? { holders: nobody, waiting: 0 }, false);
    throw heldBy(this.k.lock, this.settings.need, refusal, this.settings.wait / 1000);
  }

  async #turn(): Promise<Taken | "again" | undefined> {
    const began = moment();
    const input = this.#input({ position: this.#position, fields: this.#record(began), ...this.#claim() });
    const r = await this.#send("turn", input, began);
    if (r.verdict === "held" || r.verdict === "held_by_earlier_send") return this.#hold(r, input, began, true);
    if (r.error instanceof RefusedError) throw r.error;
    return r.verdict === "again" && !r.doubt ? "again" : undefined; // a late turn would have older times than the next
  }

  /** Watches for the deletion of a key, and of my ticket. */
  async #watch(key: string): Promise<Watch | undefined> {
    try {
      return await this.gateway.watch(watchedFor(this.k, this.#input(), key), this.#patience());
    } catch (error) {
      if (error instanceof RefusedError) throw error;
      await sleep(100 + 400 * Math.random());
      return undefined;
    }
  }

  /** What is to be done if the process ends now. */
  get cleanup(): Cleanup { return this.#cleanup({ doubt: this.#doubt || this.#taking }); }

  #cleanup(more: Partial<Cleanup>): Cleanup {
    const waiting = this.#lease !== "";
    const input = this.#input({ queued: waiting });
    return { prefix: this.k.prefix, input, doubt: this.#doubt, lease: this.#lease, waiting, ...more };
  }

  /** Leaves nothing of the attempt behind but its hold. */
  async end(held: boolean) {
    const cleanup = held ? this.#cleanup({ doubt: false, waiting: false }) : this.#cleanup({});
    if (!this.#lease && !cleanup.doubt) return;
    const foreground = Math.min(longestCleanup, this.call.answerBy - performance.now());
    await finish(this.gateway, cleanup, held ? 0 : foreground, cleanup.doubt ? tombstoneTTL : ticketTTL);
  }
}
