/** What a lock can fail with. Every message is one line that names the lock, and safe to print. */

import { describe, plain, type Holder } from "./record.js";

/** Somebody else holds the lock, or others wait for it. */
export class HeldError extends Error {
  override readonly name: string = "HeldError";

  constructor(
    readonly lock: string,
    /** The record of the holder; undefined if nobody holds the lock and others are waiting for it. */
    readonly holder: Holder | undefined,
    /** How many wait in the queue, not counting this call. */
    readonly waiting: number,
    prefix = "",
  ) {
    const queue = waiting === 1 ? "1 is waiting" : `${waiting} are waiting`;
    super(prefix + (holder
      ? `lock ${plain(lock)} is held by ${describe(holder)}${waiting ? `; ${queue}` : ""}`
      : `nobody holds lock ${plain(lock)}, ${queue}`));
  }
}

/** The time to wait ran out. The lock is as it was. */
export class WaitTimeoutError extends HeldError {
  override readonly name = "WaitTimeoutError";

  constructor(lock: string, holder: Holder | undefined, waiting: number, seconds: number) {
    super(lock, holder, waiting, `gave up after ${seconds} s: `);
  }
}

/**
 * Why a hold ended. `deadline`: etcd confirmed no extension in time, by this machine's clock; `forced`, `auto_unlocked`,
 * `abandoned`: an operator or the unlocker ended it; `deleted`: its keys are gone, without a note; `replaced`: another
 * holds the lock.
 */
export type Reason = "deadline" | "forced" | "auto_unlocked" | "abandoned" | "deleted" | "replaced";

/** The lock is no longer held, or must not be relied on any more. Stop the work. */
export class LostError extends Error {
  override readonly name = "LostError";

  constructor(readonly lock: string, readonly reason: Reason, note = "") {
    super(`lock ${plain(lock)} was lost: ${note || sentences[reason]}`);
  }
}

const sentences: Record<Reason, string> = {
  deadline: "its time ran out before etcd confirmed an extension",
  forced: "an operator unlocked it",
  auto_unlocked: "it was unlocked because its time was over",
  abandoned: "it was unlocked because its process was said to have ended",
  deleted: "its record was deleted, and nobody left a note",
  replaced: "another holds it",
};

/** The request was wrong, or etcd does not allow it. Trying again changes nothing. */
export class RefusedError extends Error {
  override readonly name = "RefusedError";
}

/** etcd did not answer in time. What was asked is undone as soon as etcd can be reached. */
export class UnavailableError extends Error {
  override readonly name = "UnavailableError";
}
