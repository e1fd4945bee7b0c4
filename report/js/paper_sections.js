// The papers' figures beside ours. What a paper gives is in papers.json with its source; ours come from the rows.

function ourBest(density, paper) {
  return rowsOf("allreduce")
    .filter(
      (row) =>
        row.network === paper.network &&
        row.ranks === paper.ranks &&
        row.dimension === paper.dimension &&
        row.density === density &&
        !isDense(row.algorithm) &&
        !isCoded(row) &&
        isTimed(row),
    )
    .sort(byNumber("seconds_median"))[0];
}

function sparcmlCodeCard(paper) {
  const pairs = paper.rows.map((theirs) => ({ ...theirs, ours: ourBest(theirs.density, paper) }));
  return chartCard({
    title: "Time of an allreduce: SparCML's code and ours",
    note: paper.source,
    rows: pairs,
    chart: barChart({
      labels: pairs.map((pair) => `density ${formatShare(pair.density)}`),
      legend: true,
      x: logAxis("time", formatSeconds),
      tell: (item) => `${item.dataset.label}: ${formatSeconds(item.raw)}`,
      datasets: [
        barSet(
          "SparCML's code",
          pairs.map((pair) => pair.seconds),
          cssColour("--soft"),
        ),
        barSet(
          "Tulle",
          pairs.map((pair) => pair.ours?.seconds_median ?? null),
          PALETTE[theme()][0],
        ),
      ],
    }),
    columns: [
      { title: "density", value: (pair) => pair.density, format: formatShare },
      { title: "SparCML's code", value: (pair) => pair.seconds, format: formatSeconds },
      { title: "Tulle", value: (pair) => pair.ours?.seconds_median, format: formatSeconds },
      { title: "by", kind: "text", value: (pair) => pair.ours?.algorithm },
    ],
  });
}

const sameName = (left, right) =>
  String(left ?? "")
    .toLowerCase()
    .startsWith(String(right).toLowerCase());

/// Our speed-up of whole runs: the best dense one by the best sparse one.
function ourSpeedUp(theirs) {
  const rows = rowsOf("train").filter(
    (row) =>
      row.network === theirs.network &&
      row.ranks === theirs.ranks &&
      sameName(row.dataset, theirs.dataset) &&
      sameName(row.model, theirs.model),
  );
  const ends = [...groupBy(rows, runName).values()].map((epochs) => epochs.sort(byNumber("epoch")).at(-1));
  const [dense, sparse] = [true, false].map(
    (wanted) => ends.filter((row) => isDense(row.algorithm) === wanted).sort(byNumber("seconds"))[0],
  );
  return dense && sparse ? dense.seconds / sparse.seconds : null;
}

function sparcmlTableCard(paper) {
  const rows = paper.rows.map((row) => ({ ...row, ours: ourSpeedUp(row) }));
  const label = (row) => `${row.system}, ${row.dataset}, ${row.model}, P = ${row.ranks}`;
  const sets = [
    barSet(
      "whole pass",
      rows.map((row) => row.speed_up),
      PALETTE[theme()][0],
    ),
    barSet(
      "communication",
      rows.map((row) => row.communication_speed_up),
      PALETTE[theme()][1],
    ),
  ];
  if (rows.some((row) => row.ours))
    sets.push(
      barSet(
        "Tulle, whole pass",
        rows.map((row) => row.ours),
        PALETTE[theme()][3],
      ),
    );
  return chartCard({
    title: "Linear models: speed-up over dense",
    note: paper.source,
    rows,
    chart: barChart({
      labels: rows.map(label),
      legend: true,
      x: linearAxis("times faster than dense", formatTimes),
      datasets: sets,
      tell: (item) => `${item.dataset.label}: ${formatTimes(item.raw)}`,
    }),
    columns: [
      { title: "system", kind: "text", value: label },
      { title: "dense pass", value: (row) => row.dense, format: formatSeconds },
      { title: "sparse pass", value: (row) => row.sparse, format: formatSeconds },
      { title: "speed-up", value: (row) => row.speed_up, format: formatTimes },
      { title: "of communication", value: (row) => row.communication_speed_up, format: formatTimes },
      { title: "Tulle", value: (row) => row.ours, format: formatTimes },
    ],
  });
}

function threeLcCard(paper) {
  const ours = rowsOf("codec").filter((row) => /3lc|three_lc/.test(nameOf(row) ?? "") && row.bits_per_value > 0);
  const rows = [
    ...paper.rows.map((row) => ({ name: `3LC, ${row.setting}`, bits: row.bits, ratio: row.ratio, from: "paper" })),
    ...latestByName(ours),
  ];
  return chartCard({
    title: "3LC: bits per value",
    note: paper.source,
    rows,
    chart: barChart({
      labels: rows.map((row) => row.name),
      x: linearAxis("bits per value", formatNumber),
      datasets: [
        barSet(
          "bits",
          rows.map((row) => row.bits),
          rows.map((row) => (row.from === "paper" ? cssColour("--soft") : PALETTE[theme()][0])),
        ),
      ],
      tell: (item) => `${formatNumber(item.raw)} bits per value`,
    }),
    columns: [
      { title: "setting", kind: "text", value: (row) => row.name },
      { title: "bits per value", value: (row) => row.bits, format: formatNumber },
      { title: "ratio to f32", value: (row) => row.ratio, format: formatTimes },
      { title: "from", kind: "text", value: (row) => row.from },
    ],
  });
}

function latestByName(rows) {
  const named = rows.map((row) => ({
    name: `Tulle, ${[nameOf(row), row.case].filter(Boolean).join(", ")}`,
    bits: row.bits_per_value,
    ratio: 32 / row.bits_per_value,
    from: "Tulle",
  }));
  return [...new Map(named.map((row) => [row.name, row])).values()];
}

function papersSection() {
  const { papers } = data;
  return {
    id: "papers",
    title: "Beside the papers",
    about:
      "What the papers report, on their machines, and what this page's rows give for the same thing where they " +
      "have it.",
    cards: [
      sparcmlCodeCard(papers.sparcml_code),
      sparcmlTableCard(papers.sparcml_table_2),
      threeLcCard(papers.three_lc_table_2),
    ],
  };
}
