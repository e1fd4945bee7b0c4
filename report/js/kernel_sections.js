// Sections about work on one rank: selectors and codecs, as multiples of what no code can do without.

const nameOf = (row) => row.algorithm ?? row.selector ?? row.codec ?? row.name;

function ratioCard(title, rows, labelOf, x) {
  const sorted = [...rows].sort((left, right) => ratioOf(left) - ratioOf(right));
  return chartCard({
    title,
    rows: sorted,
    chart: barChart({
      labels: sorted.map(labelOf),
      x: linearAxis(x, formatTimes),
      datasets: [barSet("ratio", sorted.map(ratioOf), cssColour("--accent"))],
      tell: (item) => [
        `${formatTimes(ratioOf(sorted[item.dataIndex]))}`,
        `median ${formatSeconds(sorted[item.dataIndex].seconds_median)}`,
      ],
    }),
    columns: [
      { title: "name", kind: "text", value: labelOf },
      { title: "N", value: (row) => row.dimension, format: (value) => (value ? formatDimension(value) : "–") },
      { title: "median", value: (row) => row.seconds_median, format: formatSeconds },
      { title: "ratio", value: ratioOf, format: formatTimes },
      { title: "bits per value", value: (row) => row.bits_per_value, format: formatNumber },
      { title: "check", kind: "text", value: (row) => (row.verified === false ? (row.failure ?? "failed") : "OK") },
    ],
  });
}

const ratioOf = (row) => row.ratio ?? row.seconds_median / row.reference_seconds;
const hasRatio = (row) => row.verified !== false && ratioOf(row) > 0;

function selectSection() {
  const rows = filtered(rowsOf("select")).filter(hasRatio);
  const titleOf = (row) => `N = ${formatNumber(row.dimension)} · ${row.distribution ?? row.type}`;
  return {
    id: "selectors",
    title: "Selectors",
    about: "Time to choose k of N values, as a multiple of one pass that only reads them. 1 is the limit.",
    cards: [...groupBy(rows, titleOf)].map(([title, own]) =>
      ratioCard(title, own, (row) => [nameOf(row), row.asked_for].filter(Boolean).join(", "), "times a read pass"),
    ),
    command: "build/release/bin/tulle bench select --json results/select.jsonl",
  };
}

function codecSection() {
  const rows = filtered(rowsOf("codec")).filter((row) => hasRatio(row) && nameOf(row) !== "memcpy");
  const titleOf = (row) => [row.direction, row.case].filter(Boolean).join(" · ");
  return {
    id: "codecs",
    title: "Codecs",
    about: "Time to encode and to decode, as a multiple of a memcpy of the plain values.",
    cards: [...groupBy(rows, titleOf)].map(([title, own]) => ratioCard(title, own, nameOf, "times memcpy")),
    command: "build/release/bin/tulle bench codec --json results/codec.jsonl",
  };
}
