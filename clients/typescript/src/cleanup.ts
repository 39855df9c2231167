/** What is left to do in etcd when nobody waits for it any more. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Gateway, Outcome, Patience } from "./gateway.js";
import { shareName } from "./kinds.js";
import { visible } from "./record.js";
import { Keys, type Input, type Step } from "./transactions.js";

export const tombstoneTTL = 3600; // seconds, longer than a stalled connection lives

/** What is to be done for a hold or an attempt that ends. It is plain data, so that another thread can do it. */
export interface Cleanup {
  prefix: string;
  /** With a token it is a hold, which is released. */
  input: Input;
  /** A send that takes the lock got no answer: the attempt has to be cancelled. */
  doubt: boolean;
  /** The lease of the ticket, if there may be one. */
  lease?: string;
  /** The attempt is in the queue, or may be. */
  waiting?: boolean;
}

/** Does it: the caller waits for some milliseconds, and then it goes on until `life` seconds are over. */
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

/** Leaves nothing in etcd, and reports whether that was confirmed. */
export async function settle(gateway: Gateway, cleanup: Cleanup, patience: Patience): Promise<boolean> {
  const { prefix, input, doubt, lease, waiting } = cleanup;
  if (input.token) return (await release(gateway, cleanup, patience)).verdict !== "unanswered";
  const k = new Keys(prefix, input.lock);
  if (waiting && !await leave(gateway, k, input, patience)) return false;
  if (lease) { // once it is revoked, no late join can put the ticket again
    const revoked = await gateway.call("/v3/lease/revoke", { ID: lease }, patience);
    if (revoked.verdict === "unanswered") return false;
  }
  return !doubt || cancel(gateway, k, input, patience);
}

/** Releases a hold; with a tombstone if a send of its acquisition may still be on its way. */
export async function release(gateway: Gateway, cleanup: Cleanup, patience: Patience): Promise<Outcome> {
  const { prefix, input, doubt } = cleanup;
  const k = new Keys(prefix, input.lock);
  if (doubt) {
    const send = (lease: string) => gateway.transact("release_in_doubt", k, { ...input, lease }, patience);
    const r = await withTombstone(gateway, patience, "release_in_doubt", send);
    if (r.verdict !== "withdraw") return r;
    void cancelLater(gateway, cleanup); // etcd is out of space: the tombstone is due later
  }
  return gateway.transact("release", k, input, patience);
}

/** Keeps sends of an acquisition that got no answer from taking the lock, in the background. */
export function cancelLater(gateway: Gateway, { prefix, input }: Cleanup) {
  const { lock, uuid, queued = false } = input;
  return finish(gateway, { prefix, input: { lock, uuid, queued }, doubt: true }, 0, tombstoneTTL);
}

/** Takes locks with what `send` sends. What that may leave behind is cleaned up, in the background or at the end. */
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

/** Leaves the queue. As its tail, it puts the tail back to the ticket before. */
async function leave(gateway: Gateway, k: Keys, input: Input, patience: Patience): Promise<boolean> {
  let r = await gateway.transact("leave", k, input, patience);
  while (r.verdict === "as_tail") {
    r = await gateway.transact("leave_as_tail", k, { ...input, older: r.older ?? undefined }, patience);
    if (r.verdict === "again") r = await gateway.transact("leave", k, input, patience);
  }
  return r.verdict !== "unanswered";
}

/**
 * Keeps sends of an attempt that got no answer from taking the lock later. An etcd that is out of space takes no
 * tombstone: what the attempt holds is given back, and the result is false.
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

/** Sends something that puts a tombstone with the lease that it is given. */
export async function withTombstone(
  gateway: Gateway, patience: Patience, step: Step, send: (lease: string) => Promise<Outcome>,
): Promise<Outcome> {
  const lease = await gateway.call("/v3/lease/grant", { TTL: String(tombstoneTTL) }, patience, step);
  if (lease.verdict !== "answered") return lease;
  const done = await send(String(lease.body.ID));
  return done.verdict === "lease" ? withTombstone(gateway, patience, step, send) : done; // gone already: with another
}

/** Tells of what nobody could catch. */
export function warn(what: string, error: unknown) {
  process.emitWarning(visible(`clustermutex: ${what} failed: ${String(error)}`));
}
