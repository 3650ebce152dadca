// The recordings as TensorBoard's server gives them. All addresses are relative: a path prefix or a proxy stays in front.

import { decodeRows } from "./rows.js";

async function get(route, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(name, value);
  }
  const response = await fetch(`./${route}?${query}`);
  if (!response.ok) throw new Error(await problem(response));
  return response;
}

async function problem(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `the server answered ${response.status}`;
  }
}

export const server = {
  live: true,
  async runs(first) {
    return (await get("runs", { first })).json();
  },
  async details(at, version) {
    return (await get("details", { ...at, version })).json();
  },
  async series(at, x0, x1, px) {
    return decodeRows(await (await get("series", { ...at, x0, x1, px })).arrayBuffer());
  },
  async ranks(run, start, x0, x1, px) {
    return (await get("ranks", { run, start, x0, x1, px })).json();
  },
  async worst(run, start) {
    return (await (await get("worst", { run, start })).json()).worst;
  },
  async heat(run, start) {
    return (await get("heat", { run, start })).json();
  },
  async owners(at, batch) {
    return (await get("owners", { ...at, batch })).json();
  },
  async compare(run, other) {
    return (await get("compare", { run, other })).json();
  },
  async snapshot(at, id, event) {
    return (await get("snapshot", { ...at, id, event })).json();
  },
  async readSnapshot(file, event) {
    const headers = { "Content-Type": "application/octet-stream" };
    const response = await fetch(`./snapshot${event === undefined ? "" : `?event=${event}`}`, { method: "POST", headers, body: file });
    if (!response.ok) throw new Error(await problem(response));
    return response.json();
  },
  download(at, id) {
    return `./download?${new URLSearchParams({ ...at, id })}`;
  },
};
