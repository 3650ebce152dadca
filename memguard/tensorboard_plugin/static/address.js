// What the page shows, in the address: of TensorBoard's page around this one, or of this one alone. So Back, reload and links work.

const PREFIX = "p.memguard.";

// Whose address it is; a host of another origin keeps its own.
function host() {
  try {
    if (window.parent !== window && window.parent.location.href) return window.parent;
  } catch {
    // As above.
  }
  return window;
}

// The values in the address by name; null where TensorBoard shows another plugin.
export function readAddress() {
  const [plugin, ...parts] = host().location.hash.slice(1).split("&");
  if (plugin && plugin !== "memguard") return null;
  return Object.fromEntries(parts.filter((part) => part.startsWith(PREFIX)).map((part) => {
    const [name, ...value] = part.slice(PREFIX.length).split("=");
    return [name, decoded(value.join("="))];
  }));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Puts values into the address; null and undefined are left out. With `pushes`, Back leads to what was there before.
export function writeAddress(values, pushes) {
  if (readAddress() === null) return;
  const { history, location } = host();
  const parts = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => `${PREFIX}${name}=${encodeURIComponent(value)}`);
  const hash = `#${["memguard", ...parts].join("&")}`;
  if (hash === location.hash) return;
  try {
    history[pushes ? "pushState" : "replaceState"](history.state, "", location.href.split("#")[0] + hash);
  } catch {
    if (pushes) location.hash = hash; // a file on a disk has no history of states
    else location.replace(hash);
  }
}

export function onAddress(changed) {
  for (const name of ["popstate", "hashchange"]) host().addEventListener(name, changed);
}

export function link() {
  return host().location.href;
}
