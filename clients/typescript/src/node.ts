/** Checks that this runs on Node 20 or later. It is the first module to be loaded. */

/** Throws an error that says what to do if a version of Node is too old. */
export function checkNode(version: string) {
  if (Number.parseInt(version) >= 20) return;
  throw new Error(`clustermutex needs Node 20 or later, but this is Node ${version} (Debian 12 has 18): ` +
    "install a newer one from https://nodejs.org");
}

checkNode(process.versions.node);
