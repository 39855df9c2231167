/** Holds that outlive the process that took them: reserved by one process, adopted by another. */

import { acquire, type Wanted } from "./attempt.js";
import { moment } from "./clock.js";
import { LostError, RefusedError } from "./errors.js";
import type { Gateway } from "./gateway.js";
import { shareName } from "./kinds.js";
import { Lock } from "./lock.js";
import { dateOf, plain } from "./record.js";
import { settle, type LockOptions } from "./settings.js";
import type { Keys } from "./transactions.js";

/** A hold without a process. Pass the name and the uuid to the process that is to adopt it. */
export interface Reservation {
  /** Of the record, such as `pool#2`. */
  name: string;
  uuid: string;
  token: bigint;
}

/** Takes the lock and leaves it held. @internal */
export async function reserve(gateway: Gateway, wanted: Wanted): Promise<Reservation> {
  for (;;) {
    const hold = await acquire(gateway, wanted);
    if (!hold.doubt) {
      hold.handedOver();
      return { name: shareName(wanted.k.lock, hold.share), uuid: hold.uuid, token: BigInt(hold.token) };
    }
    await Lock.of(gateway, wanted, hold).release(); // a late request could take the lock again
  }
}

/** The lock with a hold that another process took, extended by as much as its last writer did. @internal */
export async function adopt(
  gateway: Gateway, k: Keys, uuid: string, options: Pick<LockOptions, "onLost" | "onAsked">,
): Promise<Lock> {
  const patience = { until: performance.now() + gateway.timeout * 1000 };
  const read = await gateway.transact("survey", k, { lock: k.lock, uuid }, patience);
  const token = String(read.holders?.whole?.token ?? 0);
  const r = read.error ? read : await gateway.transact("detach", k, { lock: k.lock, uuid, token }, patience);
  if (r.error) throw r.error;
  if (r.verdict === "lost") throw new LostError(k.lock, r.reason ?? "deleted", r.ending);
  const { lockedAt, alertAt, unlockAt } = read.holders?.whole ?? {};
  const alive = r.fields?.find(({ name }) => name === "alive")?.value.toString().split(" ")[0];
  const last = dateOf(alive) ?? lockedAt;
  if (!last || !alertAt || !unlockAt) {
    throw new RefusedError(`the record of lock ${plain(k.lock)} does not say for how long it is held`);
  }
  const since = (at: Date) => Math.max(at.getTime() - last.getTime(), 100) / 1000;
  const settings = settle({ ...options, alertAfter: Math.min(since(alertAt), since(unlockAt)),
    autoUnlockAfter: since(unlockAt) });
  const { monotonic, wall } = moment();
  const began = { monotonic: monotonic - Math.max(wall - last.getTime(), 0), wall: last.getTime() };
  const hold = { uuid, token, began, queued: false, doubt: false, share: 0, handedOver: () => undefined };
  return Lock.of(gateway, { k, settings }, hold);
}
