/** The transactions of semaphores and read-write locks: each share has a record of its own. */

import {
  base64, created, delayRange, dequeue, get, notCancelled, ofShare, record, shareRange, tombstone, transactions, who,
} from "./transactions.js";
import type { Input, Keys, Step } from "./transactions.js";

/** The body of a step. */
export function bodyOf(step: Step, k: Keys, i: Input): object {
  return ((i.kind && shares[step]) ?? transactions[step])(k, i);
}

const noneSince = (revision = "0", [from, end]: readonly [string, string]) =>
  ({ ...created(from, String(BigInt(revision) + 1n)), range_end: base64(end), result: "LESS" });

/** Compares that the claim is still free, and that no share was added since they were counted. */
const free = (k: Keys, i: Input) => {
  const own = ofShare(k, i.share);
  return [
    created(own.field("uuid")), notCancelled(k, i), created(own.delay),
    ...(i.share ? [created(k.field("uuid")), created(k.delay)] : []),
    ...(i.kind === "shared" ? [] : [noneSince(i.counted, shareRange(k)), noneSince(i.counted, delayRange(k))]),
  ];
};
const attempt = (k: Keys, i: Input) => ({
  compare: [...free(k, i), created(k.tail), created(k.ticket(i.uuid))],
  success: record(ofShare(k, i.share), i),
  failure: [...who(k, i), get(k.tail)],
});
const withdrawal = (k: Keys, i: Input) => [...who(k, i), ...(i.queued ? dequeue(k, i) : [])];

const shares: Partial<Record<Step, (k: Keys, i: Input) => object>> = {
  acquire: attempt,
  try: attempt,
  turn: (k, i) => ({
    compare: [...free(k, i), created(k.ticket(i.uuid), i.position)],
    success: [...record(ofShare(k, i.share), i), ...dequeue(k, i)],
    failure: [...who(k, i), get(k.ticket(i.uuid))],
  }),
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
