/// <reference lib="esnext.disposable" preserve="true" />

import "./node.js"; // first, because it throws if Node is too old

export { Client } from "./client.js";
export type { ClientOptions, JobOptions, LeaderOptions, OneOfSeveral, ReserveOptions, SoleOptions } from "./client.js";
export type { Delay } from "./documents.js";
export { HeldError, LostError, MutexError, RefusedError, UnavailableError, WaitTimeoutError } from "./errors.js";
export type { Reason } from "./errors.js";
export type { Reservation } from "./handover.js";
export type { KindOptions } from "./kinds.js";
export { Lock } from "./lock.js";
export type { Attributes, Holder } from "./record.js";
export type { LockOptions, Request } from "./settings.js";
export { Locks } from "./together.js";
