// Lets Node load the TypeScript client from its sources, which import each other by the names of what is built of them.

import { registerHooks } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

globalThis.__dirname = dirname(fileURLToPath(import.meta.resolve("clustermutex")));
registerHooks({
  resolve(name, context, next) {
    const own = name.startsWith("./") && context.parentURL?.endsWith(".ts");
    return next(own ? name.replace(/\.js$/, ".ts") : name, context);
  },
});
