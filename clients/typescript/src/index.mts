// The same code under both module systems, so that `instanceof` works whichever of them threw.
export * from "./index.js";
