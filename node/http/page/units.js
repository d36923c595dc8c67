// Numbers, octets and times as people read them.

const WHOLE = new Intl.NumberFormat("en-GB", { useGrouping: true });
const SHORT = new Intl.NumberFormat("en-GB", { notation: "compact", maximumSignificantDigits: 3 });

/** A count: whole to 99 999, then short (`1.2M`). */
export function count(value) {
  if (value === null || value === undefined) return "";
  return Math.abs(value) < 100_000 ? WHOLE.format(value) : SHORT.format(value);
}

/** Something per second. */
export function rate(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0/s";
  return `${value < 10 ? value.toFixed(1) : count(Math.round(value))}/s`;
}

/** Octets. */
export function octets(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** How long, of milliseconds, in the two largest units: `2 h 05 min`, `12 s`, `340 ms`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 === 0 ? `${minutes} min` : `${minutes} min ${two(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${two(minutes % 60)} min`;
  const days = Math.floor(hours / 24);
  return days < 1000 ? `${days} d ${two(hours % 24)} h` : `${count(days)} d`;
}

/** A setting in milliseconds, without rounding: `90 s`, `1500 ms`, `7 d`. */
export function exactly(ms) {
  for (const [length, unit] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]]) {
    if (ms >= length && ms % length === 0) return `${ms / length} ${unit}`;
  }
  return `${ms} ms`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
