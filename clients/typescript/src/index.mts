// The same code under both module systems, so that `instanceof` works whichever of them threw.
export {
  Client, HeldError, Lock, LostError, MutexError, RefusedError, UnavailableError, WaitTimeoutError,
} from "./index.js";
export type { Attributes, ClientOptions, Delay, Holder, LockOptions, Reason, Request } from "./index.js";
