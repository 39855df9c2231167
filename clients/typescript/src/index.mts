// The same code under both module systems, so that `instanceof` works whichever of them threw.
export {
  Client, HeldError, Lock, Locks, LostError, MutexError, RefusedError, UnavailableError, WaitTimeoutError,
} from "./index.js";
export type {
  Attributes, ClientOptions, Delay, Holder, KindOptions, LeaderOptions, LockOptions, Reason, Request, SoleOptions,
} from "./index.js";
