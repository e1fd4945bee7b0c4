// Sections about comparisons of allreduce: time by density, and who wins where.

const RACE_COMMAND = "make bench";

const allreduceColumns = [
  { title: "algorithm", kind: "text", value: (row) => row.algorithm },
  { title: "ran", kind: "text", value: (row) => (row.chosen === row.algorithm ? "" : row.chosen) },
  { title: "density", value: (row) => row.density, format: formatShare },
  { title: "median", value: (row) => row.seconds_median, format: formatSeconds },
  { title: "quartile 1", value: (row) => row.seconds_q1, format: formatSeconds },
  { title: "quartile 3", value: (row) => row.seconds_q3, format: formatSeconds },
  { title: "against best dense", value: speedUp, format: formatTimes },
  { title: "sent, most of a rank", value: (row) => row.bytes_sent_max, format: formatBytes },
  { title: "values in the sum", value: (row) => row.nnz_result, format: formatNumber },
  { title: "check", kind: "text", value: (row) => (row.verified === false ? (row.failure ?? "failed") : "OK") },
];

const placeOf = (row) =>
  [row.network, row.ranks, row.dimension, row.type, row.op, row.overlap, row.input].join("\u0001");
const UNUSUAL = { op: "sum", overlap: "uniform", input: "matching" };

function placeTitle(row) {
  const unusual = Object.entries(UNUSUAL).filter(([field, usual]) => row[field] != null && row[field] !== usual);
  return [
    row.network,
    `P = ${row.ranks}`,
    `N = ${formatDimension(row.dimension)} ${row.type}`,
    ...unusual.map(([field]) => row[field]),
  ].join(" · ");
}

/// Groups of rows that one chart can show, slow networks first.
function places(rows) {
  const order = (group) => ["lab", "shar", "thre", "simu"].indexOf(group[0].network.slice(0, 4).trim());
  return [...groupBy(rows, placeOf).values()].sort(
    (left, right) =>
      order(left) - order(right) ||
      compare(left[0].network, right[0].network) ||
      left[0].dimension - right[0].dimension ||
      left[0].ranks - right[0].ranks,
  );
}

function linesByAlgorithm(rows, yOf) {
  return [...groupBy(rows, "algorithm")].map(([algorithm, own]) =>
    lineSet(
      algorithm,
      own
        .filter((row) => yOf(row) > 0)
        .sort(byNumber("density"))
        .map((row) => ({
          x: row.density,
          y: yOf(row),
          row,
          ...(yOf === medianOf ? { low: row.seconds_q1, high: row.seconds_q3 } : {}),
        })),
      algorithm === "auto" ? { borderWidth: 1, pointStyle: "rectRot", pointRadius: 6, order: 1 } : { order: 2 },
    ),
  );
}

const medianOf = (row) => (isTimed(row) ? row.seconds_median : null);

function tellTime(dataset, { row }) {
  const ran = row.chosen === row.algorithm || !row.chosen ? "" : ` (${row.chosen})`;
  return [
    `${row.algorithm}${ran}: ${formatSeconds(row.seconds_median)}`,
    `quartiles ${formatSeconds(row.seconds_q1)} to ${formatSeconds(row.seconds_q3)}`,
    ...(speedUp(row) == null ? [] : [`${formatTimes(speedUp(row))} the best dense row`]),
  ];
}

function timeCard(rows) {
  const isVirtual = rows.some((row) => row.seconds_are_virtual);
  return chartCard({
    title: placeTitle(rows[0]),
    note: isVirtual ? "virtual time of the cost model, no clock was read" : "",
    chart: lineChart({
      datasets: linesByAlgorithm(rows, medianOf),
      tell: tellTime,
      heading: ({ row }) => `density ${formatShare(row.density)}`,
      x: logAxis("density of a rank's input", formatShare),
      y: logAxis("time", formatSeconds),
    }),
    columns: allreduceColumns,
    rows,
  });
}

function timeSection() {
  const rows = filtered(rowsOf("allreduce"));
  return {
    id: "time",
    title: "Time by density",
    about:
      "Time of one allreduce by the density of each rank's input, both axes logarithmic (the form of SparCML's " +
      "Figure 4). Dashed rows work on dense vectors; diamonds are auto, which chooses for itself.",
    cards: places(rows).map(timeCard),
    command: RACE_COMMAND,
  };
}

function winnerOf(rows) {
  return rows.filter((row) => isTimed(row) && row.algorithm !== "auto").sort(byNumber("seconds_median"))[0];
}

function winnerCard(rows) {
  const columns = distinct(rows, "density").sort((left, right) => left - right);
  const ranks = distinct(rows, "ranks").sort((left, right) => left - right);
  const winners = new Map(
    [...groupBy(rows, (row) => `${row.density} ${row.ranks}`)]
      .map(([cell, own]) => [cell, winnerOf(own)])
      .filter(([, winner]) => winner),
  );
  const cellOf = (column, rank) => {
    const winner = winners.get(`${columns[column]} ${rank}`);
    return (
      winner && {
        name: winner.algorithm,
        colour: colourOf(winner.algorithm),
        label: formatTimes(speedUp(winner)),
        words: [
          `${winner.algorithm}: ${formatSeconds(winner.seconds_median)}`,
          `${formatTimes(speedUp(winner))} the best dense row`,
        ],
      }
    );
  };
  const labels = columns.map(formatShare);
  const { network, dimension, type } = rows[0];
  return chartCard({
    title: `${network} · N = ${formatDimension(dimension)} ${type}`,
    chart: mapChart({
      columns: labels,
      rows: ranks,
      x: "density",
      y: "ranks P",
      cellOf: (label, rank) => cellOf(labels.indexOf(label), rank),
    }),
    columns: [{ title: "ranks", value: (row) => row.ranks }, ...allreduceColumns],
    rows: [...winners.values()],
  });
}

function winnerSection() {
  const rows = filtered(rowsOf("allreduce"));
  const maps = [...groupBy(rows, (row) => placeOf({ ...row, ranks: "" })).values()];
  return {
    id: "winners",
    title: "Who wins where",
    about:
      "The fastest row for each density and number of ranks, by its colour in the legend above, and how many " +
      "times faster it is than the best dense row of the same comparison.",
    cards: maps.sort((left, right) => compare(left[0].network, right[0].network)).map(winnerCard),
    command: RACE_COMMAND,
  };
}
