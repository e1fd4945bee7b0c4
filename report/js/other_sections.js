// Sections about what is not an allreduce: selectors, codecs, where time goes, training, and the papers' figures.

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
  const cards = [...groupBy(rows, (row) => `${row.dimension} ${row.density}`).values()].map((own) =>
    ratioCard(
      `N = ${formatDimension(own[0].dimension)} · density ${formatShare(own[0].density)}`,
      own,
      (row) => [nameOf(row), row.distribution].filter(Boolean).join(", "),
      "times a read pass",
    ),
  );
  return {
    id: "selectors",
    title: "Selectors",
    about: "Time to choose k of N values, as a multiple of one pass that only reads them. 1 is the limit.",
    cards,
    command: "build/release/bin/tulle bench select --json results/select.jsonl",
  };
}

function codecSection() {
  const rows = filtered(rowsOf("codec")).filter(hasRatio);
  const cards = [...groupBy(rows, (row) => `${row.direction ?? ""} ${row.density ?? ""}`).values()].map((own) =>
    ratioCard(
      [own[0].direction ?? "codecs", own[0].density != null ? `density ${formatShare(own[0].density)}` : null]
        .filter(Boolean)
        .join(" · "),
      own,
      (row) => [nameOf(row), row.case].filter(Boolean).join(", "),
      "times memcpy",
    ),
  );
  return {
    id: "codecs",
    title: "Codecs",
    about: "Time to encode and to decode, as a multiple of a memcpy of the plain values.",
    cards,
    command: "build/release/bin/tulle bench codec --json results/codec.jsonl",
  };
}

const PARTS = [
  ["communication_seconds", "communication", 0],
  ["selection_seconds", "selection", 1],
  ["compute_seconds", "compute", 2],
];

// Epochs of a training run become one bar.
function partsOf(rows) {
  const sum = (field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);
  const parts = Object.fromEntries(PARTS.map(([field]) => [field, sum(field)]));
  const whole = sum("seconds") || sum("seconds_median");
  parts.compute_seconds ||= Math.max(0, whole - parts.communication_seconds - parts.selection_seconds);
  return { ...parts, name: runName(rows[0]), whole };
}

const runName = (row) =>
  [
    row.run ?? row.dataset,
    row.model,
    row.algorithm,
    row.ranks && `P = ${row.ranks}`,
    row.network,
    row.density != null ? formatShare(row.density) : null,
  ]
    .filter(Boolean)
    .join(" · ");

function timePartsSection() {
  const rows = filtered(allRows).filter((row) => PARTS.some(([field]) => row[field] > 0));
  const bars = [...groupBy(rows, runName).values()].map(partsOf);
  const palette = PALETTE[theme()];
  const cards =
    bars.length === 0
      ? []
      : [
          chartCard({
            title: "Where the time goes",
            rows: bars,
            chart: barChart({
              labels: bars.map((bar) => bar.name),
              stacked: true,
              legend: true,
              x: linearAxis("time", formatSeconds),
              datasets: PARTS.map(([field, label, colour]) =>
                barSet(
                  label,
                  bars.map((bar) => bar[field]),
                  palette[colour],
                ),
              ),
              tell: (item) => `${item.dataset.label}: ${formatSeconds(item.raw)}`,
            }),
            columns: [
              { title: "run", kind: "text", value: (bar) => bar.name },
              ...PARTS.map(([field, title]) => ({ title, value: (bar) => bar[field], format: formatSeconds })),
            ],
          }),
        ];
  return {
    id: "parts",
    title: "Where the time goes",
    about: "Communication, selection and compute of rows that tell them apart.",
    cards,
    command: "mpirun -n 4 build/release/bin/tulle train linear --data FILE --json results/train.jsonl",
  };
}

/// Epochs of a run, with running sums of time and bytes.
function curveOf(rows) {
  let seconds = 0,
    bytes = 0;
  return [...rows].sort(byNumber("epoch")).map((row) => {
    seconds += row.seconds ?? 0;
    bytes += row.bytes_sent ?? row.bytes ?? 0;
    return { row, seconds, bytes, loss: row.loss };
  });
}

function lossCard(title, curves, field, axis, format) {
  const algorithms = new Set([...curves.values()].map(([point]) => point.row.algorithm));
  const keyOf = (name, [point]) => (algorithms.size === curves.size ? (point.row.algorithm ?? name) : name);
  const datasets = [...curves].map(([name, points]) => ({
    ...lineSet(
      keyOf(name, points),
      points.map((point) => ({ x: point[field], y: point.loss, row: point.row })),
    ),
    label: name,
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
    rows: [...curves.values()].flat(),
    columns: [
      { title: "run", kind: "text", value: (point) => runName(point.row) },
      { title: "epoch", value: (point) => point.row.epoch },
      { title: "loss", value: (point) => point.loss, format: formatNumber },
      {
        title: "accuracy",
        value: (point) => point.row.accuracy,
        format: (share) => (share == null ? "–" : formatShare(share)),
      },
      { title: "time so far", value: (point) => point.seconds, format: formatSeconds },
      { title: "bytes so far", value: (point) => point.bytes, format: formatBytes },
    ],
  });
}

function lossSection() {
  const rows = filtered(rowsOf("train")).filter((row) => row.epoch != null && row.loss != null);
  const curves = new Map([...groupBy(rows, runName)].map(([name, own]) => [name, curveOf(own)]));
  const cards =
    rows.length === 0
      ? []
      : [
          lossCard("Loss by time", curves, "seconds", "time", formatSeconds),
          lossCard("Loss by bytes", curves, "bytes", "bytes sent", formatBytes),
        ];
  return {
    id: "loss",
    title: "Training",
    about: "Loss of whole runs, by time and by what was sent.",
    cards,
    command: "mpirun -n 4 build/release/bin/tulle train linear --data FILE --json results/train.jsonl",
  };
}
