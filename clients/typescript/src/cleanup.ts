/** Cleanup in etcd that no caller waits for. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Gateway, Outcome, Patience } from "./gateway.js";
import { shareName } from "./kinds.js";
import { visible } from "./record.js";
import { Keys, type Input, type Step } from "./transactions.js";

export const tombstoneTTL = 3600; // seconds, longer than a stalled connection lasts

/** What to clean up after a hold or an attempt. It is plain data, so that another thread can do it. */
export interface Cleanup {
  prefix: string;
  /** The token of a hold to release. */
  input: Input;
  /** A request that takes the lock got no answer: the attempt has to be cancelled. */
  doubt: boolean;
  /** The lease of the ticket, if there may be one. */
  lease?: string;
  /** The attempt is in the queue, or may be. */
  waiting?: boolean;
}

/** Runs the cleanup. The caller waits for some milliseconds; it then continues for up to `life` seconds. */
export async function finish(gateway: Gateway, cleanup: Cleanup, milliseconds: number, life: number) {
  const forget = gateway.atExit(() => cleanup);
  const until = performance.now() + life * 1000;
  if (milliseconds > 0 && await settle(gateway, cleanup, { until: performance.now() + milliseconds })) {
    forget();
    return;
  }
  const goOn = async () => {
    const patience = () => ({ until: performance.now() + 10_000, background: true });
    while (performance.now() < until && !await settle(gateway, cleanup, patience())) {
      await sleep(1000, undefined, { ref: false });
    }
  };
  goOn().catch((error: unknown) => warn("cleanup", error)).finally(forget);
}

/** Removes everything from etcd, and reports whether that was confirmed. */
export async function settle(gateway: Gateway, cleanup: Cleanup, patience: Patience): Promise<boolean> {
  const { prefix, input, doubt, lease, waiting } = cleanup;
  if (input.token) return (await release(gateway, cleanup, patience)).verdict !== "unanswered";
  const k = new Keys(prefix, input.lock);
  if (waiting && !await leave(gateway, k, input, patience)) return false;
  if (lease) { // without the lease, no late join can put the ticket again
    const revoked = await gateway.call("/v3/lease/revoke", { ID: lease }, patience);
    if (revoked.verdict === "unanswered") return false;
  }
  return !doubt || cancel(gateway, k, input, patience);
}

/** Releases a hold; with a tombstone if a request of its acquisition may still be in flight. */
export async function release(gateway: Gateway, cleanup: Cleanup, patience: Patience): Promise<Outcome> {
  const { prefix, input, doubt } = cleanup;
  const k = new Keys(prefix, input.lock);
  if (doubt) {
    const send = (lease: string) => gateway.transact("release_in_doubt", k, { ...input, lease }, patience);
    const r = await withTombstone(gateway, patience, "release_in_doubt", send);
    if (r.verdict !== "withdraw") return r;
    void cancelLater(gateway, cleanup); // etcd is out of space: write the tombstone later
  }
  return gateway.transact("release", k, input, patience);
}

/** In the background, keeps unanswered requests of an acquisition from taking the lock. */
export function cancelLater(gateway: Gateway, { prefix, input }: Cleanup) {
  const { lock, uuid, queued = false } = input;
  return finish(gateway, { prefix, input: { lock, uuid, queued }, doubt: true }, 0, tombstoneTTL);
}

/** Takes locks with the request of `send`. Cleans up what it may leave behind, in the background or at exit. */
export async function take(gateway: Gateway, prefix: string, locks: Input[], send: () => Promise<Outcome>) {
  const cleanups = locks.map(({ lock, uuid }) => ({ prefix, input: { lock, uuid }, doubt: true }));
  const kept = cleanups.map((cleanup) => gateway.atExit(() => cleanup));
  const handedOver = () => kept.forEach((forget) => forget());
  const r = await send();
  if (r.token) return { ...r, handedOver };
  for (const cleanup of r.doubt ? cleanups : []) void cancelLater(gateway, cleanup);
  handedOver();
  if (r.error) throw r.error;
  return { ...r, handedOver };
}

/** Leaves the queue. If this is the tail, the tail then names the ticket before it. */
async function leave(gateway: Gateway, k: Keys, input: Input, patience: Patience): Promise<boolean> {
  let r = await gateway.transact("leave", k, input, patience);
  while (r.verdict === "as_tail") {
    r = await gateway.transact("leave_as_tail", k, { ...input, older: r.older ?? undefined }, patience);
    if (r.verdict === "again") r = await gateway.transact("leave", k, input, patience);
  }
  return r.verdict !== "unanswered";
}

/**
 * Keeps unanswered requests of an attempt from taking the lock later. An etcd that is out of space accepts no
 * tombstone: this then releases what the attempt holds, and resolves to false.
 */
async function cancel(gateway: Gateway, k: Keys, input: Input, patience: Patience): Promise<boolean> {
  const send = (lease: string) => gateway.transact("cancel", k, { ...input, lease }, patience);
  const done = await withTombstone(gateway, patience, "cancel", send);
  const { share } = done.verdict === "withdraw" ? await gateway.transact("withdraw", k, input, patience) : done;
  if (share !== undefined) {
    const lock = shareName(input.lock, share);
    const record = await gateway.transact("withdraw", new Keys(k.prefix, lock), { lock, uuid: input.uuid }, patience);
    if (record.error) return false;
  }
  return done.verdict === "cancelled";
}

/** Sends a transaction that writes a tombstone, with a lease for it. */
export async function withTombstone(
  gateway: Gateway, patience: Patience, step: Step, send: (lease: string) => Promise<Outcome>,
): Promise<Outcome> {
  const lease = await gateway.call("/v3/lease/grant", { TTL: String(tombstoneTTL) }, patience, step);
  if (lease.verdict !== "answered") return lease;
  const done = await send(String(lease.body.ID));
  return done.verdict === "lease" ? withTombstone(gateway, patience, step, send) : done; // the lease has expired
}

/** Emits a warning for an error that no caller can catch. */
export function warn(what: string, error: unknown) {
  process.emitWarning(visible(`clustermutex: ${what} failed: ${String(error)}`));
}
