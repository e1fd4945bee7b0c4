// The section about rows that select while they communicate, beside SparDL's Table 1.

// SparDL's Table 1 for given numbers: depth, and the least and the most words.
const SPARDL_TABLE_1 = {
  topka: (P, k) => [Math.log2(P), 2 * (P - 1) * k],
  topkdsa: (P, k, N) => [P + 2 * Math.log2(P), (4 * k * (P - 1)) / P, ((2 * k + N) * (P - 1)) / P],
  gtopk: (P, k) => [2 * Math.log2(P), 4 * k * Math.log2(P)],
  oktopk: (P, k) => [2 * (P + Math.log2(P)), (2 * k * (P - 1)) / P, (6 * k * (P - 1)) / P],
  spardl: (P, k) => [2 * Math.ceil(Math.log2(P)), (4 * k * (P - 1)) / P],
};

function ofTable1(row) {
  const formula = row.teams > 1 ? null : SPARDL_TABLE_1[row.algorithm];
  if (!formula) return { depth: "–", words: "–" };
  const [depth, ...words] = formula(row.ranks, row.k, row.dimension);
  return { depth: formatNumber(depth), words: words.map(formatNumber).join(" to ") };
}

const topKColumns = [
  { title: "algorithm", kind: "text", value: (row) => row.algorithm },
  { title: "teams", value: (row) => row.teams },
  { title: "time", value: (row) => row.seconds_median, format: formatSeconds },
  { title: "selecting", value: (row) => row.select_seconds, format: formatSeconds },
  { title: "depth", value: (row) => row.depth, format: formatNumber },
  { title: "Table 1", kind: "text", value: (row) => ofTable1(row).depth },
  { title: "words", value: (row) => row.data_bytes_max / 4, format: formatNumber },
  { title: "Table 1", kind: "text", value: (row) => ofTable1(row).words },
  { title: "values delivered", value: (row) => row.nnz_result, format: formatNumber },
];

function topKCard(rows) {
  const sorted = [...rows].sort(byNumber("seconds_median"));
  const label = (row) => [row.algorithm, row.teams > 1 && `${row.teams} teams`].filter(Boolean).join(", ");
  return chartCard({
    title: `${placeTitle(rows[0])} · k = ${formatNumber(rows[0].k)}`,
    note: rows[0].seconds_are_virtual ? "virtual time of the cost model, no clock was read" : "",
    rows: sorted,
    columns: topKColumns,
    chart: barChart({
      labels: sorted.map(label),
      x: linearAxis("time", formatSeconds),
      datasets: [
        barSet(
          "time",
          sorted.map((row) => row.seconds_median),
          cssColour("--accent"),
        ),
      ],
      tell: (item) => `${formatSeconds(item.raw)}, ${formatNumber(sorted[item.dataIndex].data_bytes_max / 4)} words`,
    }),
  });
}

function topKSection() {
  const rows = filtered(rowsOf("top_k_allreduce")).filter(isTimed);
  return {
    id: "topk",
    title: "Selecting while communicating",
    about:
      "SparDL and its rivals deliver about k values of the sum of dense gradients. The tables hold depth and words " +
      "(an index or a value, through the busiest port) beside SparDL's Table 1, which counts plain indices and, but " +
      "for SparDL, a power of two of ranks.",
    cards: places(rows).flatMap((place) => [...groupBy(place, "k").values()].map(topKCard)),
    command: "build/release/bin/tulle bench allreduce --transport sim --ranks 8 --k 1% --json results/topk.jsonl",
  };
}
