/** The options of a lock, their checks and their defaults. */

import type { LostError } from "./errors.js";
import { RefusedError } from "./errors.js";
import type { KindOptions, Need } from "./kinds.js";
import { inWords, type Attributes } from "./record.js";

declare global {
  /** The members used here, for programs with types of neither Node nor the DOM. */
  interface AbortSignal {
    readonly aborted: boolean;
    readonly reason: any; // eslint-disable-line @typescript-eslint/no-explicit-any -- as it is declared elsewhere
    throwIfAborted(): void;
  }
}

/** Options of one lock. Durations are in seconds. */
export interface LockOptions extends KindOptions {
  /** How long to wait for the lock: 0 tries once. The default is no limit. */
  wait?: number | undefined;
  /** Gives up the wait when it aborts. It does not affect a held lock. */
  signal?: AbortSignal | undefined;
  /** How long the work takes on a bad day; after that, operators are alerted. Default 300, or `autoUnlockAfter` / 3. */
  alertAfter?: number | undefined;
  /** When a silent holder loses the lock. Default three times `alertAfter`; 60 with a heartbeat. */
  autoUnlockAfter?: number | undefined;
  /** How long before `autoUnlockAfter` the work has to stop. Default a tenth of it, at most 30. */
  margin?: number | undefined;
  /** One line for whoever is paged: what the lock is held for. */
  purpose?: string | undefined;
  /** Shown with the lock and in its history: a ticket, a build, a number of rows. */
  attributes?: Attributes | undefined;
  /**
   * Extends the lock in the background while the process lives, for at most this many seconds; true means an hour. It
   * does not postpone the alert, because being alive is not progress.
   */
  heartbeat?: boolean | number | undefined;
  /** Called once if the lock is lost. */
  onLost?: ((lost: LostError) => unknown) | undefined;
  /** Called when the holder is asked to finish. */
  onAsked?: ((request: Request) => unknown) | undefined;
}

/** A request that the holder finish early. Invisible characters in its texts are escaped. */
export interface Request {
  by: string;
  reason: string;
  /** Where the name comes from, such as `cli`, or `waiter` for a client that waits for the lock. */
  source: string;
  at?: Date;
}

/** Durations of a hold, in milliseconds. */
export interface Durations { alertAfter: number; autoUnlockAfter: number; margin: number }

export interface Settings extends Omit<LockOptions, keyof Durations | "wait" | "heartbeat">, Durations {
  /** Milliseconds. */
  wait: number;
  /** When the wait ends, by performance.now(), if it began before this lock's turn. */
  giveUpAt?: number;
  /** The longest hold of the heartbeat, in milliseconds; 0 without one. */
  heartbeat: number;
  need: Need;
  /** Reports whether a leader can work. */
  check?: (() => unknown) | undefined;
}

const tenYears = 10 * 365 * 86400;

/** Checks the options and fills in the defaults. */
export function settle(options: LockOptions, need: Need = {}): Settings {
  const { wait = Infinity, heartbeat = false } = options;
  if (typeof wait !== "number" || !(wait >= 0)) throw new RefusedError(`wait is ${wait}; it must be 0 or more seconds`);
  const most = heartbeat === true ? 3600 : heartbeat === false ? 0 : duration("heartbeat", heartbeat) ?? 0;
  return { ...options, ...durations(options, most), wait: wait * 1000, heartbeat: most * 1000, need };
}

/** Checks the durations of a hold. `heartbeat` is in seconds, 0 without one. */
export function durations(options: Pick<LockOptions, keyof Durations>, heartbeat: number): Durations {
  let alert = duration("alertAfter", options.alertAfter);
  let unlock = duration("autoUnlockAfter", options.autoUnlockAfter);
  if (heartbeat) {
    alert ??= Math.min(300, heartbeat);
    unlock ??= Math.min(60, heartbeat);
  }
  alert ??= unlock === undefined ? 300 : unlock / 3;
  unlock ??= 3 * alert;
  const margin = duration("margin", options.margin) ?? Math.min(unlock / 10, 30);
  if (unlock < 0.1) throw new RefusedError(`autoUnlockAfter is ${inWords(unlock)}; it must be at least 0.1 s`);
  if (margin >= unlock) {
    throw new RefusedError(`the margin of ${inWords(margin)} leaves nothing of autoUnlockAfter (${inWords(unlock)})`);
  }
  const longest = heartbeat || unlock;
  if (Math.max(alert, unlock) > longest) {
    const [a, u, most] = [alert, unlock, longest].map(inWords);
    throw new RefusedError(`alertAfter (${a}) and autoUnlockAfter (${u}) must be at most ${most}`);
  }
  return { alertAfter: alert * 1000, autoUnlockAfter: unlock * 1000, margin: margin * 1000 };
}

function duration(name: string, seconds: number | undefined): number | undefined {
  if (seconds === undefined) return undefined;
  if (typeof seconds === "number" && seconds > 0 && seconds <= tenYears) return seconds;
  throw new RefusedError(`${name} is ${String(seconds)}; it must be a positive number of seconds, ten years at most`);
}
