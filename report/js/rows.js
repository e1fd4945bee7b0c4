// The rows of the page: named, the latest of each measurement, and grouped.

const data = JSON.parse(document.getElementById("data").textContent);

/// True for rows on dense vectors without loss: what speed-ups are measured against.
const isDense = (algorithm) => /^(dense\w*|mpi_native\w*)$/.test(algorithm);

function labOf(row) {
  try {
    return JSON.parse(row.lab);
  } catch {
    return null;
  }
}

/// Where messages travelled: "lab 1gbit", "shared memory", "threads", "simulation", "simulation of gige".
function networkOf(row) {
  const lab = row.lab ? labOf(row) : null;
  if (lab?.rate) return `lab ${lab.rate}${lab.odd_hosts?.length ? ", uneven" : ""}`;
  if (row.transport === "sim" && row.network) return `simulation of ${row.network}`;
  return { mpi: "shared memory", sim: "simulation" }[row.transport] ?? row.network ?? row.transport ?? "one process";
}

function kindOf(row) {
  if (row.kind?.startsWith("train")) return "train";
  if (row.kind && row.kind !== "allreduce") return row.kind;
  return row.k == null ? "allreduce" : "top_k_allreduce";
}

// Codings that are not the usual ones are part of the name: they share charts with the others.
function algorithmOf(row) {
  const codings = [row.index_coding !== "auto" && row.index_coding, row.value_coding !== "raw" && row.value_coding];
  return [row.algorithm, ...codings.filter(Boolean)].join(" ").replace(",bucket=1024,norm=l2", ""); // the usual ones
}

const isCoded = (row) => row.algorithm.includes(" ");

const fileName = (path) => path?.replace(/^.*\//, "").replace(/\..*$/, "");

function trainingOf(row) {
  const { loss = row.objective, accuracy } = row.held_out ?? row;
  return { algorithm: row.algorithm ?? row.aggregation, dataset: row.dataset ?? fileName(row.data), loss, accuracy };
}

function named(row) {
  const kind = kindOf(row);
  const own = kind === "train" ? trainingOf(row) : row.algorithm != null ? { algorithm: algorithmOf(row) } : {};
  return { ...row, ...own, kind, network: networkOf(row) };
}

// What makes two rows the same measurement: everything that was asked for, nothing that was found.
const KEY_FIELDS =
  "kind network algorithm name selector codec ranks dimension density k teams residual type op overlap input " +
  "asked_for distribution direction threads dataset model solver staleness run epoch step case recipe shapes values " +
  "back_propagation_seconds";
const keyOf = (row) =>
  KEY_FIELDS.split(" ")
    .map((field) => row[field] ?? "")
    .join("\u0001");

function latestOfEach(rows) {
  const latest = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const other = latest.get(key);
    if (!other || (row.timestamp ?? "") >= (other.timestamp ?? "")) latest.set(key, row);
  }
  return [...latest.values()];
}

const allRows = latestOfEach(data.rows.map(named));
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

const comparisonOf = (row) =>
  [row.network, row.ranks, row.dimension, row.type, row.op, row.overlap, row.input, row.density].join("\u0001");
const bestDenseOfComparison = new Map();
for (const [comparison, rows] of groupBy(rowsOf("allreduce"), comparisonOf)) {
  const dense = rows.filter((row) => isDense(row.algorithm) && isTimed(row)).sort(byNumber("seconds_median"));
  if (dense.length) bestDenseOfComparison.set(comparison, dense[0]);
}

/// How many times faster than the best dense row of the same comparison; undefined where there is none.
function speedUp(row) {
  const dense = bestDenseOfComparison.get(comparisonOf(row));
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
