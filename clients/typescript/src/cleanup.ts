/** What is left to do in etcd when nobody waits for it any more. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Gateway, Outcome, Patience } from "./gateway.js";
import { visible } from "./record.js";
import type { Input, Keys } from "./transactions.js";

const tombstoneTTL = 3600; // seconds, longer than a stalled connection lives

/** Repeats a task until it returns true: for `seconds`, and then in the background, until `life` seconds are over. */
export async function finish(task: (patience: Patience) => Promise<boolean>, seconds: number, life: number) {
  const until = performance.now() + life * 1000;
  if (seconds && await task({ until: performance.now() + seconds * 1000 })) return;
  const goOn = async () => {
    while (performance.now() < until && !await task({ until: performance.now() + 10_000, background: true })) {
      await sleep(1000, undefined, { ref: false });
    }
  };
  goOn().catch((error: unknown) => warn("cleanup", error));
}

/** Tells of what nobody could catch. */
export function warn(what: string, error: unknown) {
  process.emitWarning(visible(`clustermutex: ${what} failed: ${String(error)}`));
}

/**
 * Keeps sends of an attempt that got no answer from taking the lock later. An etcd that is out of space takes no
 * tombstone: what the attempt holds is given back, and the result is false.
 */
export async function cancel(gateway: Gateway, k: Keys, input: Input, patience: Patience): Promise<boolean> {
  const send = (lease: string) => gateway.transact("cancel", k, { ...input, lease }, patience);
  const done = await withTombstone(gateway, patience, send);
  if (done.verdict === "withdraw") await gateway.transact("withdraw", k, input, patience);
  return done.verdict === "cancelled";
}

/** Sends something that puts a tombstone with the lease that it is given. */
export async function withTombstone(
  gateway: Gateway, patience: Patience, send: (lease: string) => Promise<Outcome>,
): Promise<Outcome> {
  const lease = await gateway.call("/v3/lease/grant", { TTL: String(tombstoneTTL) }, patience, "cancel");
  if (lease.verdict !== "answered") return lease;
  const done = await send(String(lease.body.ID));
  return done.verdict === "lease" ? withTombstone(gateway, patience, send) : done; // gone already: with another
}
