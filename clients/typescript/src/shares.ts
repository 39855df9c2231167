/** The transactions of semaphores and read-write locks: each share has a record of its own. */

import { base64, delayRange, dequeue, shareRange, tombstone, transactions, who } from "./transactions.js";
import type { Input, Keys, Step } from "./transactions.js";

/** The body of a step. */
export function bodyOf(step: Step, k: Keys, i: Input): object {
  return ((i.kind && shares[step]) ?? transactions[step])(k, i);
}

const withdrawal = (k: Keys, i: Input) => [...who(k, i), ...(i.queued ? dequeue(k, i) : [])];

const shares: Partial<Record<Step, (k: Keys, i: Input) => object>> = {
  cancel: (k, i) => ({ success: [tombstone(k, i), ...withdrawal(k, i)] }),
  withdraw: (k, i) => ({ success: withdrawal(k, i) }),
};

/** What to watch in order to see a key deleted: the first in line for a share watches all holders and delays. */
export function watchedFor(k: Keys, i: Input, key: string): object[] {
  const first = i.kind && key === k.field("uuid") ? [shareRange(k), [k.delay, delayRange(k)[1]] as const] : [];
  return [
    ...[key, k.ticket(i.uuid)].map((key) => ({ key: base64(key) })),
    ...first.map(([from, end]) => ({ key: base64(from), range_end: base64(end) })),
  ].map((range) => ({ ...range, filters: ["NOPUT"] }));
}
