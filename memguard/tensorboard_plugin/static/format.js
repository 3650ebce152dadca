// Numbers as text; sizes exactly as memguard/text/units.py writes them.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function formatBytes(nbytes) {
  if (nbytes === null || nbytes === undefined || Number.isNaN(nbytes)) return "unknown";
  let value = Number(nbytes);
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${value.toFixed(0)} bytes`;
  return `${rounded(value, Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

// A half goes to the even digit, as Python's format has it: a size is the same text in the terminal and here.
function rounded(value, digits) {
  const scaled = value * 10 ** digits;
  const below = Math.floor(scaled);
  const even = scaled - below === 0.5 ? below + Math.abs(below % 2) : Math.round(scaled);
  return (even / 10 ** digits).toFixed(digits);
}

export function formatDifference(nbytes) {
  if (nbytes === null || Number.isNaN(nbytes)) return "";
  if (Math.abs(nbytes) < 1) return "same";
  return (nbytes > 0 ? "+" : "\u2212") + formatBytes(Math.abs(nbytes));
}

// One unit for a whole axis: {divisor, unit}.
export function axisUnit(largest) {
  let unit = 0;
  let divisor = 1;
  while (largest / divisor >= 1024 && unit < UNITS.length - 1) {
    divisor *= 1024;
    unit += 1;
  }
  return { divisor, unit: UNITS[unit] };
}

export function formatCount(number) {
  return number === null || number === undefined || Number.isNaN(number) ? "unknown" : Number(number).toLocaleString("en-US");
}

export function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "unknown";
  return seconds < 1 ? `${(seconds * 1000).toFixed(0)} ms` : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

export function formatShare(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(0)} %` : "";
}

export function formatAgo(time, now) {
  const seconds = Math.max(0, now - time);
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

// A moment of a run as a clock shows it, with the day where the run takes more than one.
export function formatClock(time, times) {
  const date = new Date(1000 * time);
  const long = times[times.length - 1] - times[0] > 86_400;
  return date.toLocaleString("en-GB", long ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

// A place in code: the file's last two parts and the line.
export function formatPlace(file, line) {
  if (!file) return "";
  const cell = /^<ipython-input-(\d+)-\w+>$/.exec(String(file));
  if (cell) return `Cell In[${cell[1]}], line ${line ?? "?"}`;
  const parts = String(file).split(/[\\/]/);
  return `${parts[parts.length - 1]}:${line ?? "?"}`;
}
