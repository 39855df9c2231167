/** This package runs on Node 20 and later. The first module that is loaded says so. */

/** Throws if a version of Node is too old, in a sentence that says what to do. */
export function checkNode(version: string) {
  if (Number.parseInt(version) >= 20) return;
  throw new Error(`clustermutex needs Node 20 or later, and this is Node ${version} (Debian 12 has 18): ` +
    "install a newer one from https://nodejs.org");
}

checkNode(process.versions.node);
