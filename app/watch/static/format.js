// Numbers and times as people read them.

const pad = (number, size = 2) => String(number).padStart(size, "0");

// Returns the time of day with milliseconds, as local time.
export const clock = at => {
  const date = new Date(at * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
};

export const dateTime = at => {
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(at).slice(0, 8)}`;
};

export const bytes = size => {
  if (size === null || size === undefined) return "";
  if (size < 1000) return `${size} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    size /= 1000;
    if (size < 999.5 || unit === "GB") return `${size < 9.95 ? size.toFixed(1) : Math.round(size)} ${unit}`;
  }
};

export const ms = value => {
  if (value === null || value === undefined) return "";
  if (value < 9.95) return value.toFixed(1);
  return grouped(Math.round(value));
};

export const grouped = number => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

export const duration = s => {
  if (s === null || s === undefined) return "";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return two(s / 60, "min", 60, "s");
  if (s < 86400) return two(s / 3600, "h", 60, "min");
  return two(s / 86400, "d", 24, "h");
};

const two = (value, unit, parts, smaller) => {
  const rest = Math.floor((value % 1) * parts);
  return `${Math.floor(value)} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
};

export const many = (count, one, more = one + "s") => `${grouped(count)} ${count === 1 ? one : more}`;
