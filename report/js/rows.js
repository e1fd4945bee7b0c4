// The rows of the page: named, the latest of each measurement, and grouped.

const data = JSON.parse(document.getElementById("data").textContent);

const isDense = (algorithm) => algorithm.startsWith("dense_") || algorithm.startsWith("mpi_native");

function labOf(row) {
  try {
    return JSON.parse(row.lab);
  } catch {
    return null;
  }
}

/// Where messages travelled: "lab 1gbit", "shared memory", "threads", "simulation".
function networkOf(row) {
  const lab = row.lab ? labOf(row) : null;
  if (lab?.rate) return `lab ${lab.rate}${lab.odd_hosts?.length ? ", uneven" : ""}`;
  return { mpi: "shared memory", sim: "simulation" }[row.transport] ?? row.network ?? row.transport ?? "one process";
}

const kindOf = (row) => row.kind ?? (row.algorithm != null && row.density != null ? "allreduce" : "other");

// What makes two rows the same measurement: everything that was asked for, nothing that was found.
const KEY_FIELDS = [
  "kind",
  "network",
  "algorithm",
  "name",
  "selector",
  "codec",
  "ranks",
  "dimension",
  "density",
  "k",
  "type",
  "op",
  "overlap",
  "input",
  "distribution",
  "direction",
  "threads",
  "dataset",
  "model",
  "run",
  "epoch",
  "step",
  "teams",
  "case",
];
const keyOf = (row) => KEY_FIELDS.map((field) => row[field] ?? "").join("\u0001");

function latestOfEach(rows) {
  const latest = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const other = latest.get(key);
    if (!other || (row.timestamp ?? "") >= (other.timestamp ?? "")) latest.set(key, row);
  }
  return [...latest.values()];
}

const allRows = latestOfEach(data.rows.map((row) => ({ ...row, kind: kindOf(row), network: networkOf(row) })));
const rowsOf = (kind) => allRows.filter((row) => row.kind === kind);

function groupBy(rows, name) {
  const groups = new Map();
  for (const row of rows) {
    const key = typeof name === "function" ? name(row) : row[name];
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return groups;
}

const byNumber = (field) => (left, right) => left[field] - right[field];
const distinct = (rows, field) => [...new Set(rows.map((row) => row[field]).filter((value) => value != null))];
const isTimed = (row) => row.verified !== false && row.seconds_median > 0;

const raceOf = (row) =>
  [row.network, row.ranks, row.dimension, row.type, row.op, row.overlap, row.input, row.density].join("\u0001");
const bestDenseOfRace = new Map();
for (const [race, rows] of groupBy(rowsOf("allreduce"), raceOf)) {
  const dense = rows.filter((row) => isDense(row.algorithm) && isTimed(row)).sort(byNumber("seconds_median"));
  if (dense.length) bestDenseOfRace.set(race, dense[0]);
}

/// How many times faster than the best dense row of the same race; undefined where there is none.
function speedUp(row) {
  const dense = bestDenseOfRace.get(raceOf(row));
  return dense && isTimed(row) ? dense.seconds_median / row.seconds_median : undefined;
}

// log2 of a factorial by Stirling's series, good to nine digits from 1 on.
function log2Factorial(n) {
  if (n < 2) return 0;
  return ((n + 0.5) * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI) + 1 / (12 * n) - 1 / (360 * n ** 3)) / Math.LN2;
}

const VALUE_BYTES = { f32: 4, f64: 8, f16: 2, bf16: 2, i32: 4, i64: 8 };

/// Bytes that one rank's k of N values need: with 4-byte (or 8-byte) indices, and with indices at their entropy.
function contributionBytes(row) {
  const values = row.nnz * (VALUE_BYTES[row.type] ?? 4);
  const indexBits = log2Factorial(row.dimension) - log2Factorial(row.nnz) - log2Factorial(row.dimension - row.nnz);
  return { raw: row.nnz * (row.dimension >= 2 ** 32 ? 8 : 4) + values, coded: indexBits / 8 + values };
}
