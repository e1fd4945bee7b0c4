// Sections about what an allreduce sends: as the library counts it, and as the wire does.

function limitLines(rows) {
  const each = [...groupBy(rows, "density").values()]
    .map(([row]) => ({ row, ...contributionBytes(row) }))
    .filter(({ row }) => row.nnz > 0)
    .sort((left, right) => left.row.density - right.row.density);
  const line = (label, field, dash) => ({
    label,
    data: each.map((limit) => ({
      x: limit.row.density,
      y: limit[field],
      words: `${label}: ${formatBytes(limit[field])}`,
      row: limit.row,
    })),
    borderColor: cssColour("--ink"),
    borderWidth: 1.5,
    borderDash: dash,
    pointRadius: 0,
    pointHitRadius: 8,
    order: 0,
  });
  return [line("input as raw pairs", "raw", [2, 3]), line("input at its entropy", "coded", [])];
}

const bytesColumns = [
  { title: "algorithm", kind: "text", value: (row) => row.algorithm },
  { title: "density", value: (row) => row.density, format: formatShare },
  { title: "sent, most of a rank", value: (row) => row.bytes_sent_max, format: formatBytes },
  {
    title: "of the entropy limit",
    value: (row) => row.bytes_sent_max / contributionBytes(row).coded,
    format: formatTimes,
  },
  { title: "sent, all ranks", value: (row) => row.bytes_sent_total, format: formatBytes },
  { title: "messages", value: (row) => row.messages, format: formatNumber },
];

function bytesCard(rows) {
  return chartCard({
    title: placeTitle({ ...rows[0], network: "any network" }),
    columns: bytesColumns,
    rows,
    chart: lineChart({
      datasets: [...linesByAlgorithm(rows, (row) => row.bytes_sent_max), ...limitLines(rows)],
      x: logAxis("density of a rank's input", formatShare),
      y: logAxis("bytes sent, most of a rank", formatBytes),
      heading: ({ row }) => `density ${formatShare(row.density)}`,
      tell: (dataset, { row, words }) => words ?? `${row.algorithm}: ${formatBytes(row.bytes_sent_max)}`,
    }),
  });
}

function bytesSection() {
  const rows = filtered(rowsOf("allreduce")).filter((row) => row.bytes_sent_max != null);
  // Only auto sends something else on another network, so the first network stands for all.
  const cards = [...groupBy(places(rows), ([row]) => placeOf({ ...row, network: "" })).values()].map(([first]) =>
    bytesCard(first),
  );
  return {
    id: "bytes",
    title: "Bytes and their limit",
    about:
      "What the busiest rank sends. The solid black line is one rank's input once, with indices at their entropy, " +
      "log2 C(N, k) bits; the dotted one is the same with plain indices. No lossless exchange of unrelated inputs " +
      "sends less.",
    cards,
    command: RACE_COMMAND,
  };
}

function wireSection() {
  const rows = filtered(rowsOf("allreduce")).filter((row) => row.wire_bytes_sent_total > 0 && row.bytes_sent_total > 0);
  const share = (row) => row.wire_bytes_sent_total / row.bytes_sent_total;
  const cards = places(rows).map((own) =>
    chartCard({
      title: placeTitle(own[0]),
      chart: lineChart({
        datasets: linesByAlgorithm(own, share),
        heading: ({ row }) => `density ${formatShare(row.density)}`,
        tell: (dataset, { row }) => [
          `${row.algorithm}: ${formatTimes(share(row))}`,
          `${formatBytes(row.wire_bytes_sent_total)} on the wire, ${formatBytes(row.bytes_sent_total)} reported`,
        ],
        x: logAxis("density of a rank's input", formatShare),
        y: { ...linearAxis("wire / reported", formatTimes), beginAtZero: false, suggestedMin: 0.98, suggestedMax: 1.1 },
      }),
      rows: own,
      columns: [
        { title: "algorithm", kind: "text", value: (row) => row.algorithm },
        { title: "density", value: (row) => row.density, format: formatShare },
        { title: "reported", value: (row) => row.bytes_sent_total, format: formatBytes },
        { title: "on the wire", value: (row) => row.wire_bytes_sent_total, format: formatBytes },
        { title: "wire / reported", value: share, format: (value) => value.toFixed(3) },
      ],
    }),
  );
  return {
    id: "wire",
    title: "Bytes on the wire",
    about:
      "What the hosts' interfaces counted, divided by what the library says it sent. Headers of Ethernet, IP and " +
      "TCP and MPI's own are the difference: 4.6 % for full packets of 1500 bytes.",
    cards,
    command: "lab/lab with --hosts 8 --rate 1gbit -- build/release/bin/tulle bench allreduce --json results/lab.jsonl",
  };
}
