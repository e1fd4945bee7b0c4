// Numbers as people read them, and elements that hold text as text: rows come from files, so nothing is ever markup.

const digits = (number, most = 3) =>
  Number(number.toPrecision(most)).toLocaleString("en", {
    maximumSignificantDigits: Math.max(most, 1 + Math.floor(Math.log10(Math.abs(number) || 1))),
  });

function withUnit(number, units) {
  if (number == null || !Number.isFinite(number)) return "–";
  if (number === 0) return "0";
  const [size, name] = units.find(([least]) => Math.abs(number) >= least) ?? units[units.length - 1];
  return `${digits(number / size)} ${name}`;
}

const formatSeconds = (seconds) =>
  withUnit(seconds, [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
    [1e-9, "ns"],
  ]);
const formatBytes = (bytes) =>
  withUnit(bytes, [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
    [1, "B"],
  ]);
const formatTimes = (ratio) => (ratio == null || !Number.isFinite(ratio) ? "–" : `${digits(ratio)}×`);
const formatShare = (share) => `${digits(share * 100)} %`;
const formatNumber = (number) => (typeof number === "number" ? digits(number, 4) : "–");

/// 16777216 as "2^24"; other numbers with separators.
function formatDimension(dimension) {
  const exponent = Math.log2(dimension);
  return Number.isInteger(exponent) && exponent >= 10 ? `2^${exponent}` : dimension.toLocaleString("en");
}

/// An element with attributes and children; strings become text nodes.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null));
  return made;
}
