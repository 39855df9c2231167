/** A held lock: extending it, noticing its loss, and releasing it. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Hold, Wanted } from "./attempt.js";
import { cancelLater, finish, release, warn, type Cleanup } from "./cleanup.js";
import { moment, monotonic, resolution, stayAlive } from "./clock.js";
import { readExtension, readRequest, type Ending } from "./documents.js";
import { LostError, RefusedError, UnavailableError, type Reason } from "./errors.js";
import type { Gateway } from "./gateway.js";
import { shareName } from "./kinds.js";
import { alive, dateOf, formatTime, inWords, plain, visible, type Field } from "./record.js";
import { durations, type Durations, type LockOptions, type Request, type Settings } from "./settings.js";
import { base64, Keys, text, type Input } from "./transactions.js";
import type { WatchEvent } from "./watch.js";

const answerWithin = 15_000; // milliseconds that alive and release wait for etcd
const recheck = 10_000; // milliseconds until a holder reads its record without an event
const watchAfter = 100; // most holds are shorter, and need no watch
const sleepCheck = 2000; // timers stop while the machine is suspended

/** A lock that this process holds, until {@link Lock.release} or until it is lost. */
export class Lock {
  readonly name: string;
  /** The identifier of this hold in the record and in the history. */
  readonly uuid: string;
  /**
   * Fencing token, greater than that of every earlier hold of any lock in the same etcd. It is a bigint because a
   * number cannot represent all 64-bit integers. Use `String(token)` in JSON, headers and SQL.
   */
  readonly token: bigint;
  /**
   * Aborts when the lock is lost, with the LostError as its reason; a release does not abort it. `aborted` and
   * `throwIfAborted` check the clock, like {@link Lock.lost}, so that work that blocks the event loop can poll them.
   * The event, and signals derived from this one, fire in the next turn of the event loop or at the next check.
   */
  readonly signal: AbortSignal;

  readonly #gateway: Gateway;
  readonly #k: Keys;
  readonly #settings: Settings;
  readonly #hold: Hold;
  readonly #loss = new AbortController();
  readonly #ended = new AbortController(); // lost or released: stops the background work

  #lost: LostError | undefined;
  #asked: Request | undefined;
  #askedAt = 0n; // revision of the latest request
  #until: number; // local deadline, monotonic
  #recorded: number; // the latest known auto_unlock_at
  #alertTarget: number;
  #alertGranted = 0; // the alert time that an operator granted
  #progress = "";
  #reported = "0"; // the latest known mod revision of `alive`
  #timer: NodeJS.Timeout | undefined;
  readonly #forget: () => void; // unregisters the cleanup at exit
  #extending: Promise<unknown> = Promise.resolve();
  #releasing: Promise<void> | undefined;

  /** @internal */
  static of(gateway: Gateway, { k, settings }: Pick<Wanted, "k" | "settings">, hold: Hold): Lock {
    return new Lock(gateway, new Keys(k.prefix, shareName(k.lock, hold.share)), settings, hold);
  }

  /** Use `Client.lock` instead. */
  private constructor(gateway: Gateway, k: Keys, settings: Settings, hold: Hold) {
    [this.#gateway, this.#k, this.#settings, this.#hold] = [gateway, k, settings, hold];
    this.name = k.lock;
    this.uuid = hold.uuid;
    this.token = BigInt(hold.token);
    this.signal = looking(this.#loss.signal, () => this.#look());
    this.#until = hold.began.monotonic + settings.autoUnlockAfter - settings.margin;
    this.#recorded = Math.floor(hold.began.wall + settings.autoUnlockAfter);
    this.#alertTarget = hold.began.wall + settings.alertAfter;
    this.#forget = gateway.atExit(() => this.#cleanup);
    hold.handedOver();
    this.#arm();
    setTimeout(() => void this.#follow(), watchAfter).unref();
    if (settings.heartbeat) void this.#beat();
    if (settings.check) {
      this.#ended.signal.addEventListener("abort", stayAlive());
      void this.#lead(settings.check);
    }
  }

  /** Why the lock was lost; undefined while it is held and after its release. Checks the clock. */
  get lost(): Reason | undefined {
    this.#look();
    return this.#lost?.reason;
  }

  /** The latest request to finish early, if any. */
  get asked(): Request | undefined { return this.#asked; }

  /**
   * Reports progress, which is shown with the lock, and extends both deadlines from now. Durations in seconds override
   * those of the lock. Rejects with a LostError if the lock is lost, and with an UnavailableError if etcd does not
   * answer in 15 s; the lock then keeps its previous deadline.
   */
  alive(progress = "", change: Change = {}): Promise<void> {
    return quiet(this.#inTurn(() => this.#extend(progress, change)));
  }

  /**
   * Releases the lock. Rejects with a LostError if it was already lost: another holder may have worked meanwhile.
   * Rejects with an UnavailableError if etcd does not answer in 15 s; the release then continues in the background.
   */
  release(): Promise<void> { return this.#releasing ??= quiet(this.#release()); }

  [Symbol.asyncDispose](): Promise<void> { return this.release(); }

  #input(more: Partial<Input> = {}): Input {
    const { uuid, token, queued } = this.#hold;
    return { lock: this.name, uuid, token, queued, ...more };
  }

  /** Runs extensions one after the other, so that the last one wins. */
  #inTurn(extend: () => Promise<void>): Promise<void> {
    const turn = this.#extending.then(extend);
    this.#extending = turn.catch(() => undefined);
    return turn;
  }

  /** Extends once. A heartbeat has no progress of its own and does not move the alert. */
  async #extend(progress: string | undefined, change: Change = {}) {
    this.#mustHold();
    const { heartbeat } = this.#settings;
    const { began } = this.#hold;
    const { alertAfter, autoUnlockAfter, margin } = Object.keys(change).length
      ? changed(this.#settings, change, heartbeat) : this.#settings;
    const now = moment();
    const wall = Math.max(now.wall, began.wall + now.monotonic - began.monotonic); // even if the clock is set back
    const beat = progress === undefined;
    const most = heartbeat ? began.wall + heartbeat : Infinity;
    const unlockAt = beat ? Math.min(wall + autoUnlockAfter, most) : wall + autoUnlockAfter;
    if (!beat) [this.#progress, this.#alertTarget] = [progress, wall + alertAfter];
    const alertAt = Math.max(Math.min(this.#alertTarget, unlockAt), this.#alertGranted);
    const fields = {
      alert_at: formatTime(alertAt), auto_unlock_at: formatTime(unlockAt), alive: alive(wall, this.#progress),
    };
    const until = performance.now() + Math.min(answerWithin, this.#left);
    const patience = { until, signal: this.#ended.signal, background: beat };
    const input = this.#input({ fields, ...(beat && { seen: this.#reported }) });
    const r = await this.#gateway.transact("alive", this.#k, input, patience);
    if (r.verdict === "lost") this.#lose(r.reason ?? "deleted", r.ending);
    if (r.verdict === "still_held") {
      this.#reported = r.body.header.revision;
      this.#until = Math.max(this.#until, now.monotonic + unlockAt - wall - margin);
      this.#recorded = Math.max(this.#recorded, Math.floor(unlockAt));
      this.#arm();
    }
    this.#mustHold();
    if (r.verdict === "again") {
      this.#adopt(r.fields ?? []);
      throw new UnavailableError("another process extends the hold");
    }
    if (r.error) throw r.error;
  }

  /** Adopts the progress and the alert time that another process wrote for this hold. */
  #adopt(all: Field[]) {
    const field = (name: string) => all.find((f) => f.name === name && f.modified >= this.token);
    this.#reported = String(field("alive")?.modified ?? 0);
    this.#progress = (field("alive")?.value.toString() ?? "").split(" ").slice(1).join(" ");
    this.#alertTarget = timeOf(field("alert_at")) || this.#alertTarget;
  }

  /** Throws if the lock is not held or cannot be relied on. */
  #mustHold() {
    this.#look();
    if (this.#lost) throw this.#lost;
    if (this.#isOver()) throw new RefusedError(`lock ${plain(this.name)} was released`);
  }

  /** Checks the clock, and returns the time left. */
  #look(): number {
    const left = this.#left;
    if (left <= 0) this.#lose("deadline", { why: this.#whyLate });
    return left;
  }

  /** Why the time ran out. Times in the record are rounded. */
  get #whyLate() {
    const { heartbeat } = this.#settings;
    const over = heartbeat && monotonic() >= this.#lastBeat - 2 * resolution;
    return over ? `its maximum hold of ${inWords(heartbeat / 1000)} is over` : "etcd confirmed no extension";
  }

  /** When the heartbeat ends. */
  get #lastBeat() { return this.#hold.began.monotonic + this.#settings.heartbeat - this.#settings.margin; }

  #isOver() { return this.#ended.signal.aborted; }

  /** Milliseconds to the local deadline. */
  get #left() { return this.#until - monotonic() - resolution; }

  /** Sets the timer to the local deadline. */
  #arm() {
    clearTimeout(this.#timer);
    const left = this.#look();
    if (this.#isOver()) return;
    this.#timer = setTimeout(() => this.#arm(), Math.min(left, sleepCheck)).unref();
  }

  /** Extends the lock repeatedly, sooner after a failure. */
  async #repeat(pause: () => number, may: () => boolean, extend: () => Promise<unknown>) {
    for (let failed = false; may() && !this.#isOver();) {
      await sleep(failed ? Math.min(pause(), 1000) : pause(), undefined, { ref: false });
      if (may() && !this.#isOver()) failed = await extend().then(() => false, () => true);
    }
  }

  /** Extends the lock whenever a third of its time has passed, until the heartbeat ends. */
  #beat() {
    const third = () => (this.#settings.autoUnlockAfter - this.#settings.margin) / 3;
    return this.#repeat(third, () => monotonic() < this.#lastBeat, () => this.#inTurn(() => this.#extend(undefined)));
  }

  /** Gives a sign of life every third of a leader's life, if its check passes. */
  #lead(check: () => unknown) {
    return this.#repeat(() => this.#settings.autoUnlockAfter / 3, () => true, async () => {
      if (await check()) await this.#inTurn(() => this.#extend(this.#progress));
    });
  }

  /** Has the next extension report which lock the holder waits for. @internal */
  waitsFor(name: string) { this.#progress = `waits for lock ${plain(name)}`; }

  /** Extends the lock while its caller waits for other locks. @internal */
  keep(done: AbortSignal) {
    const pause = () => Math.min(this.#settings.autoUnlockAfter / 4, 2000);
    return this.#repeat(pause, () => !done.aborted, () => this.#inTurn(() => this.#extend(undefined)));
  }

  /** Watches the record until the hold ends, despite errors. */
  async #follow() {
    while (!this.#isOver()) {
      await this.#watch().catch((error: unknown) => warn("watching a lock", error));
      if (!this.#isOver()) await sleep(250 + 750 * Math.random(), undefined, { ref: false });
    }
  }

  /** Watches the record, and reads it when others write to it, until the watch ends or seems dead. */
  async #watch() {
    const range = { key: base64(this.#k.field("asked")), range_end: base64(this.#k.field("uuid") + "\0") };
    const patience = { until: Infinity, signal: this.#ended.signal, background: true };
    const watch = await this.#gateway.watch([range], patience).catch(() => undefined);
    try {
      await this.#check(false);
      for (let quiet = 0; quiet < 6 && watch && !watch.ended && !this.#isOver();) { // after six it may be dead
        const events = await watch.next(recheck);
        quiet = events.length ? 0 : quiet + 1;
        if (quiet || !events.every((event) => this.#isOwn(event))) await this.#check(events.some(this.#isEnd));
      }
    } finally {
      watch?.close();
    }
  }

  /** Reports whether this handle caused the event. */
  #isOwn({ kv }: WatchEvent) {
    return text(kv.key) === this.#k.field("auto_unlock_at") && text(kv.value) === formatTime(this.#recorded);
  }

  readonly #isEnd = ({ type, kv }: WatchEvent) => text(kv.key) === this.#k.field("uuid") &&
    BigInt(kv.mod_revision) > this.token && (type === "DELETE" || text(kv.value) !== this.uuid);

  /** Reads the record. If the hold is known to be gone, waits only briefly for the reason. */
  async #check(gone: boolean) {
    if (this.#isOver()) return;
    const until = performance.now() + (gone ? 1000 : this.#gateway.timeout * 1000);
    const patience = { until, signal: this.#ended.signal, background: true };
    const r = await this.#gateway.transact("check", this.#k, this.#input(), patience);
    if (r.verdict === "still_held") this.#learn(r.fields ?? []);
    else if (r.verdict === "lost") this.#lose(r.reason ?? "deleted", r.ending);
    else if (gone) this.#lose("deleted");
  }

  /** Reads what others wrote into the record: a request to finish, or more time. */
  #learn(all: Field[]) {
    const field = (name: string) => all.find((f) => f.name === name && f.modified >= this.token);
    const [asked, extended] = [field("asked"), field("extended")];
    const [alertAt, unlockAt] = [field("alert_at"), field("auto_unlock_at")];
    const given = extended && readExtension(extended.value, this.uuid, this.#hold.token);
    if (given && extended.modified === alertAt?.modified) {
      this.#alertGranted = Math.max(this.#alertGranted, timeOf(alertAt));
    }
    const byThat = given && extended.modified === unlockAt?.modified;
    this.#postpone(timeOf(unlockAt), byThat ? given.seconds ?? Infinity : Infinity);
    if (!asked || asked.modified <= this.#askedAt) return;
    const request = readRequest(asked.value, this.uuid, this.#hold.token);
    if (!request) return;
    const { by = "", reason = "", source = "" } = request;
    this.#askedAt = asked.modified;
    this.#asked = { ...request, by: visible(by), reason: visible(reason), source: visible(source) };
    tell("onAsked", this.#settings.onAsked, this.#asked);
  }

  /**
   * Moves the local deadline by as much as an operator moved the record's, because the operator's clock may differ.
   * An operator who counted from now gave no more than `seconds`.
   */
  #postpone(unlockAt: number, seconds: number) {
    if (unlockAt <= this.#recorded) return;
    let longer = unlockAt - this.#recorded;
    if (longer > (seconds + 1) * 1000) longer = Math.min(longer, seconds * 1000 - this.#settings.margin - this.#left);
    this.#recorded = unlockAt;
    this.#until += Math.max(longer, 0);
    this.#arm();
  }

  #lose(reason: Reason, ending?: Partial<Ending>) {
    if (this.#isOver()) return;
    this.#lost = new LostError(this.name, reason, ending);
    this.#end();
    this.#forget();
    const mayReturn = this.#hold.doubt && reason !== "deadline"; // after a deadline, release takes care of it
    if (mayReturn) void cancelLater(this.#gateway, this.#cleanup);
    this.#loss.abort(this.#lost);
    tell("onLost", this.#settings.onLost, this.#lost);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#ended.abort("over"); // without a reason, it would create an error with a call stack
  }

  get #cleanup(): Cleanup {
    return { prefix: this.#k.prefix, input: this.#input(), doubt: this.#hold.doubt };
  }

  async #release() {
    this.#end();
    const before = this.#lost;
    if (before && before.reason !== "deadline") throw before;
    const r = await release(this.#gateway, this.#cleanup, { until: performance.now() + answerWithin });
    if (r.error) void finish(this.#gateway, this.#cleanup, 0, this.#settings.autoUnlockAfter / 1000);
    this.#forget();
    if (r.error) throw r.error;
    if (r.verdict === "lost") throw this.#lost ??= new LostError(this.name, r.reason ?? "deleted", r.ending);
    if (before && r.doubt) throw before; // an earlier send or another program may have released it
  }
}

/** Durations in seconds for {@link Lock.alive}. */
export type Change = Pick<LockOptions, "alertAfter" | "autoUnlockAfter">;

function changed({ alertAfter, autoUnlockAfter }: Durations, change: Change, heartbeat: number): Durations {
  const before = { alertAfter: alertAfter / 1000, autoUnlockAfter: autoUnlockAfter / 1000 };
  return durations({ ...before, ...change }, heartbeat / 1000);
}

const timeOf = (f: Field | undefined) => dateOf(f?.value.toString())?.getTime() ?? 0;

/** A view of the signal that checks when read, because no timer fires while work blocks the event loop. */
function looking(signal: AbortSignal, look: () => unknown): AbortSignal {
  const aborted = (): boolean => {
    look();
    return Reflect.get<AbortSignal, "aborted">(AbortSignal.prototype, "aborted", signal);
  };
  const throwIfAborted = () => { if (aborted()) throw signal.reason; };
  return Object.defineProperties(signal, { aborted: { get: aborted }, throwIfAborted: { value: throwIfAborted } });
}

/** A promise whose rejection does not end the process if the caller does not await it. */
function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** Calls back. Errors of the callback become warnings, because no caller can catch them. */
function tell<T>(name: string, callback: ((value: T) => unknown) | undefined, value: T) {
  const call = async () => { await callback?.(value); };
  call().catch((error: unknown) => warn(name, error));
}
