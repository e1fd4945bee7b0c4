// Sections about where time goes, and about training. Times and bytes of an epoch are since the beginning of its run.

const runName = (row) =>
  [
    row.dataset,
    row.model,
    row.algorithm,
    `P = ${row.ranks}`,
    row.network,
    row.k && `k = ${formatNumber(row.k)}`,
    row.teams > 1 && `${row.teams} teams`,
  ]
    .filter(Boolean)
    .join(" · ");

/// The runs of training: their names, and their epochs in order.
function trainingRuns() {
  const runs = groupBy(filtered(rowsOf("train")), runName);
  for (const epochs of runs.values()) epochs.sort(byNumber("epoch"));
  return runs;
}

const PARTS = ["communication", "selection", "compute"];

function partsOf(row) {
  if (row.kind === "train") {
    const communication = row.communication_seconds ?? 0;
    return { name: runName(row), communication, selection: 0, compute: row.seconds - communication };
  }
  const selection = row.select_seconds ?? 0;
  return { name: runName(row), communication: row.seconds_median - selection, selection, compute: 0 };
}

function partsCard(title, bars) {
  const palette = PALETTE[theme()];
  return chartCard({
    title,
    rows: bars,
    chart: barChart({
      labels: bars.map((bar) => bar.name),
      stacked: true,
      legend: true,
      x: linearAxis("time", formatSeconds),
      datasets: PARTS.map((part, place) =>
        barSet(
          part,
          bars.map((bar) => bar[part]),
          palette[place],
        ),
      ),
      tell: (item) => `${item.dataset.label}: ${formatSeconds(item.raw)}`,
    }),
    columns: [
      { title: "run", kind: "text", value: (bar) => bar.name },
      ...PARTS.map((part) => ({ title: part, value: (bar) => bar[part], format: formatSeconds })),
    ],
  });
}

function timePartsSection() {
  const runs = [...trainingRuns().values()].map((epochs) => partsOf(epochs.at(-1)));
  const calls = filtered(rowsOf("top_k_allreduce"))
    .filter((row) => isTimed(row) && row.select_seconds > 0)
    .map(partsOf);
  return {
    id: "parts",
    title: "Where the time goes",
    about:
      "Whole runs of training, and calls that select while they communicate; the rest of such a call is messages " +
      "and sums.",
    cards: [
      runs.length ? partsCard("Training", runs) : null,
      calls.length ? partsCard("Selecting allreduces", calls) : null,
    ].filter(Boolean),
    command: TRAIN_COMMAND,
  };
}

const TRAIN_COMMAND = "mpirun -n 4 build/release/bin/tulle train linear --data FILE --json results/train.jsonl";

const epochColumns = [
  { title: "run", kind: "text", value: runName },
  { title: "epoch", value: (row) => row.epoch },
  { title: "loss", value: (row) => row.loss, format: formatNumber },
  { title: "accuracy", value: (row) => row.accuracy, format: (share) => (share == null ? "–" : formatShare(share)) },
  { title: "time so far", value: (row) => row.seconds, format: formatSeconds },
  { title: "sent so far, a rank", value: (row) => row.bytes_sent, format: formatBytes },
];

function lossCard(title, runs, field, axis, format) {
  const datasets = runs.map((epochs) => ({
    ...lineSet(
      epochs[0].algorithm,
      epochs.map((row) => ({ x: row[field], y: row.loss, row })),
    ),
    label: [epochs[0].algorithm, `P = ${epochs[0].ranks}`, epochs[0].network].join(" · "),
  }));
  return chartCard({
    title,
    chart: lineChart({
      datasets,
      legend: true,
      height: 340,
      x: linearAxis(axis, format),
      y: { ...linearAxis("loss", formatNumber), beginAtZero: false },
      heading: ({ row }) => `epoch ${row.epoch}`,
      tell: (dataset, point) => [`${dataset.label}: loss ${formatNumber(point.y)}`, `after ${format(point.x)}`],
    }),
    rows: runs.flat(),
    columns: epochColumns,
  });
}

function lossSection() {
  const sets = groupBy([...trainingRuns().values()], ([row]) => `${row.dataset} · ${row.model}`);
  return {
    id: "loss",
    title: "Training",
    about: "Loss of whole runs, by time and by what a rank sent; on held-out rows where there are some.",
    cards: [...sets].flatMap(([name, runs]) => [
      lossCard(`${name}: loss by time`, runs, "seconds", "time", formatSeconds),
      lossCard(`${name}: loss by bytes`, runs, "bytes_sent", "bytes sent by a rank", formatBytes),
    ]),
    command: TRAIN_COMMAND,
  };
}
